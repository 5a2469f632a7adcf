"""Leases that a test gives and takes away."""


class Leases:
    """Grants a lease to whoever asks first; `holder` can be taken away."""

    def __init__(self, role: str = "keeper") -> None:
        self.holder = ""
        self.granted: list[OneLease] = []
        self._role = role

    def lease(self, role: str, holder: str, *, lease_s: float) -> "OneLease":
        assert role == self._role
        self.granted.append(OneLease(self, holder))
        return self.granted[-1]


class OneLease:
    def __init__(self, leases: Leases, name: str) -> None:
        self._leases, self._name, self._had = leases, name, False

    def take(self) -> bool:
        if self._had and self._leases.holder != self._name:
            return False  # for ever
        self._leases.holder = self._leases.holder or self._name
        self._had = self._leases.holder == self._name
        return self._had

    def release(self) -> None:
        assert self._leases.holder == self._name
        self._leases.holder = ""


class ScriptedLease:
    """A store with one lease that answers `take` as listed, the last answer for ever."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.granted = 0
        self.asked = 0
        self.released = 0

    def lease(self, role: str, holder: str, *, lease_s: float) -> "ScriptedLease":
        self.granted += 1
        return self

    def take(self) -> bool:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def release(self) -> None:
        self.released += 1
