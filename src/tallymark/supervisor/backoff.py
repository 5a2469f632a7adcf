"""How long to wait before something that died is started again."""

from dataclasses import dataclass

QUICK_DEATHS = 5


@dataclass
class BackOff:
    """Doubles with every death, starts over after a while of health."""

    first_s: float = 0.2
    longest_s: float = 30.0
    healthy_s: float = 20.0
    deaths: int = 0
    """in a row, none of them after a healthy while"""

    def after_death(self, *, lived_s: float) -> float:
        """Seconds to wait now that it died after living so long."""
        self.deaths = 1 if lived_s >= self.healthy_s else self.deaths + 1
        if self.deaths >= QUICK_DEATHS:
            return self.longest_s
        return min(self.longest_s, self.first_s * 2.0 ** (self.deaths - 1))

    @property
    def hopeless(self) -> bool:
        """It dies so quickly that a person should look."""
        return self.deaths >= QUICK_DEATHS
