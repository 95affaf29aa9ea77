"""Reviewers whose server is killed again and again while they decide."""

import threading
import time
import uuid
from dataclasses import dataclass, field
from http.client import HTTPException

from review_pages import ReviewServer
from served_review import Client

ACTIONS = ("confirm", "reject", "skip")


@dataclass(eq=False)
class Clicker(threading.Thread):
    """A reviewer who decides as fast as the server answers, and asks again without an answer."""

    server: ReviewServer
    reviewer: str
    items: int
    count: int
    saved: list[str] = field(default_factory=list)
    repeated: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        """Decide."""
        for number in range(self.count):
            name = str(uuid.uuid4())
            path, body = self.make_request(number, name)
            self._send(path, body)
            self.saved.append(name)

    def make_request(self, number: int, name: str) -> tuple[str, dict[str, object]]:
        """Return the address and the content of a request."""
        decision = {
            "uuid": name,
            "item": number % self.items,
            "action": ACTIONS[number % len(ACTIONS)],
        }
        return "/api/decisions", {"decisions": [decision]}

    def _send(self, path: str, body: dict[str, object]) -> None:
        while True:
            try:
                Client(self.server.port, self.reviewer, self.server.token).post(
                    path, body
                )
                return
            except (OSError, HTTPException):  # no answer: the server is gone
                self.repeated += 1
                time.sleep(0.02)


class Labeller(Clicker):
    """Somebody who adds boxes, changes each of them, and deletes every second one."""

    def make_request(self, number: int, name: str) -> tuple[str, dict[str, object]]:
        """Return the next of: add, change, add, change, delete."""
        turn = number % 5
        if turn in (0, 2):
            self.box = str(uuid.uuid4())
        action = ("add", "change", "add", "change", "delete")[turn]
        box = {"id": self.box, "recording": "a.wav", "label": self.reviewer}
        box |= {"start_s": 1.0, "end_s": 2.0 + number % 7}
        box |= {"low_freq_hz": 100.0, "high_freq_hz": 900.0}
        return "/api/boxes", {"uuid": name, "action": action, "box": box}


def decide_through_kills(
    server, names, items, decisions, kills, check, clicker=Clicker
):
    """Let reviewers decide while the server is killed; call `check` after each kill.

    `check` gets the uuids that were answered as saved before the kill.
    """
    server.start()
    clickers = [clicker(server, name, items, decisions // len(names)) for name in names]
    for one in clickers:
        one.start()
    for number in range(kills):
        wanted = (number + 1) * decisions // (kills + 1)
        while sum(len(one.saved) for one in clickers) < wanted:
            time.sleep(0.0007)
        answered = [name for one in clickers for name in list(one.saved)]
        server.kill()
        check(answered)
        server.start()
    for one in clickers:
        one.join(120)
        assert not one.is_alive()
    server.kill()
    check([name for one in clickers for name in one.saved])
    return clickers
