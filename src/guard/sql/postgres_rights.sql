@if_schema@GRANT USAGE ON SCHEMA @own@ TO app;
REVOKE EXECUTE ON FUNCTION @own@.holdfast_enter(text, bigint, text), @own@.holdfast_raise(text, text, bigint, text), @own@.holdfast_in_row(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @own@.holdfast_enter(text, bigint, text), @own@.holdfast_raise(text, text, bigint, text), @own@.holdfast_in_row(text, text), @own@.holdfast_refuse(text, text, bigint, bigint), @own@.holdfast_no_token(bigint), @own@.holdfast_brought(text), @own@.holdfast_moves(text, text, text, text, bigint, boolean), @own@.holdfast_found(text, text) TO app;
