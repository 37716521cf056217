"""What a lock protects: something that is written to, with the token of the lock under which it is written."""


class Resource:
    """guarded: refuses a token lower than the highest it has seen. Else it believes everybody."""

    def __init__(self, guarded=True):
        self.guarded = guarded
        self.highest = 0
        self.accepted, self.refused = [], []  # (token, value), in the order in which they came

    @property
    def value(self):
        return self.accepted[-1][1] if self.accepted else None

    def write(self, token, value):
        """True if it was taken."""
        if self.guarded and token < self.highest:
            self.refused.append((token, value))
            return False
        self.highest = max(self.highest, token)
        self.accepted.append((token, value))
        return True
