-- Functions with parameters that no client of this version of the tables has ever called, nor a function that one calls. Where tables were taken away by hand,
-- and made anew, they stand beside those that are here. Only these: another function of such a name is somebody's own.
-- If the parameters of a function that clients call change, the one of before stays, for those who call it; or the version of the tables is another.
DO $$
DECLARE
    signature text;
BEGIN
    FOREACH signature IN ARRAY ARRAY[
        @'_acquire'@ || '(text,integer,bytea,bytea,bytea,"char",integer,bigint,bigint,bigint,boolean,boolean,boolean,boolean,text,bigint,bigint[],bigint[],bigint)',
        @'_bury'@ || '(bytea,bigint[],bigint[],text,bigint)',
        @'_floor'@ || '(text,integer,bigint)',
        @'_note'@ || '(text,bytea,text,bigint[],bigint[],bigint[],bigint,bigint)',
        @'_observe'@ || '(text,integer,bytea,bytea,bytea,bigint,bigint)',
        @'_renew'@ || '(text,integer,bytea[],bytea[],bigint[],bigint[],bigint[])',
        @'_renew'@ || '(text,integer,bytea[],bytea[],bigint[],bigint[],bigint[],text,bigint)',
        @'_row_grant'@ || '(text,integer,bytea,bytea,bytea)',
        @'_sweep'@ || '(text,integer,bytea,bigint[],bigint[],bigint,text,bigint)',
        @'_wake'@ || '(bytea,boolean,boolean)']
    LOOP
        IF to_regprocedure(signature) IS NOT NULL THEN -- a notice for each that is not there would be noise
            EXECUTE 'DROP FUNCTION ' || signature;
        END IF;
    END LOOP;
END
$$;
