"""Scripts of cmd (.bat, .cmd), read and never run: variables, blocks in brackets, `if`, and `for` over a list of words.

The rules are those of `help set`, `help if` and `help for` of Windows: %NAME% is what the variable holds before the block that it
stands in, !NAME! what it holds at the command. What is not known here stays as it is written, and `unread` says what was not followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import fail
from .cmd_text import bracket_end, chunks, command_end, words_of
from .doubts import MOST_TURNS, Uses, shown
from .expansion import Expansion
from .shell_words import Statement

MOST_TOLD = 20  # things that were not followed
DEEPEST = 64  # blocks, conditions and loops inside each other
_PERCENT = re.compile(r"%%|%~dp0|%(\w+)%")
_DELAYED = re.compile(r"!(\w+)!")
_SET = re.compile(r'(?i)set[ \t]+(?P<how>/[ap][ \t]+)?(?P<quote>"?)(?P<name>[^\s"=]+?)(?P<operator>[-+*/]?)=(?P<value>.*)', re.DOTALL)
_WORD = r'(?:"[^"\n]*"|[^\s"()=])+'
_IF = re.compile(
    rf"(?i)if(?P<case>[ \t]+/i)?(?P<not>[ \t]+not)?[ \t]+(?:(?:exist|defined|errorlevel|cmdextversion)[ \t]+{_WORD}"
    rf"|(?P<left>{_WORD})[ \t]*(?P<sign>==|[ \t](?:equ|neq|lss|leq|gtr|geq)[ \t])[ \t]*(?P<right>{_WORD}))[ \t]*"
)
_ELSE = re.compile(r"(?i)[ \t\n]*else(?=[ \t(])[ \t]*")
_FOR = re.compile(r"(?i)for(?P<how>[ \t]+/[dflr](?:[ \t]+(?:\"[^\"\n]*\"|[^\s%]+))?)?[ \t]+%(?P<name>[a-z])[ \t]+in[ \t]*\(")
_DO = re.compile(r"(?i)[ \t\n]*do(?=[ \t(])[ \t]*")
_ELSEWHERE = re.compile(r"(?i)call[ \t]+:(?!eof\b)|(?:call[ \t]+)?cmd(?:\.exe)?[ \t]+/[ck]\b|(?:if|for)[ \t]|set[ \t][^=]+=")
_JUMP = re.compile(r"(?i)(?:goto\b[ \t]*:?(?P<label>[^\s:&|]*)|exit\b)")
_ARGUMENTS = re.compile(r"%~?\*")  # all that the script got
_UNREAD = re.compile(r"%~?\d|%\w+(?::[^%\n]*)?%|!\w+(?::[^!\n]*)?!")  # a variable or an argument that is not known
_UNKNOWN = re.compile(r"[%!*?]")


@dataclass
class _Found:
    """A command and where it ends; `run` reads it."""

    end: int
    run: Callable[[], None]


class CmdScript:
    """Reads a script command by command. `exported` are the variables of the environment alone, which cmd does not tell apart."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}  # names in small letters
        self.exported: dict[str, str] = {}
        self.statements: list[Statement] = []
        self.unread: list[str] = []
        self.expansion = Expansion()
        self._turns = 0
        self._text = ""
        self._jumps: list[str] = []  # since the last command with settings
        self._before: dict[str, str | None] | None = None  # inside a branch, what the variables that it sets held before

    def run(self, text: str) -> None:
        """Reads all commands of a text; raises UserError for one that comes to more than can be read."""
        self._text = text
        for chunk in chunks(text):
            self._run_all(_PERCENT.sub(self._percent, chunk), 0)

    def _percent(self, found: re.Match[str]) -> str:
        return {"%%": "%", "%~dp0": ".\\"}.get(found[0].lower()) or self._value(found)

    def _value(self, found: re.Match[str]) -> str:
        """What a variable holds; it stays as it is written where that is not known."""
        value = self.variables.get(found[1].lower(), found[0])
        self.expansion.put(value)
        return value

    def _run_all(self, text: str, depth: int) -> None:
        """Reads the commands of a block, one after the other."""
        at = 0
        while at < len(text):
            if text[at] in " \t\n&|@)":
                at += 1
                continue
            found = self._command(text, at, depth)
            found.run()
            at = found.end

    def _command(self, text: str, at: int, depth: int) -> _Found:
        """The command that begins here: a block, a condition, a loop or a plain one."""
        if depth > DEEPEST:
            raise fail("blocks", "lie inside each other without end.", "Give the trainer's command alone.")
        if text.startswith("(", at):
            end = bracket_end(text, at)
            if end > len(text):
                self._tell(f"{shown(text)} opens a bracket that is not closed")
            return _Found(end, lambda: self._run_all(text[at + 1 : end - 1], depth + 1))
        if condition := _IF.match(text, at):
            return self._if(text, condition, depth)
        if loop := _FOR.match(text, at):
            return self._for(text, loop, depth)
        end = command_end(text, at)
        return _Found(end, lambda: self._plain(text[at:end]))

    def _rest(self, text: str, at: int, depth: int) -> _Found:
        """What belongs to a condition or a loop: a block, or all that stands on the line."""
        if text.startswith("(", at) or _IF.match(text, at) or _FOR.match(text, at):
            return self._command(text, at, depth + 1)
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        return _Found(end, lambda: self._run_all(text[at:end], depth + 1))

    def _if(self, text: str, condition: re.Match[str], depth: int) -> _Found:
        first = self._rest(text, condition.end(), depth)
        otherwise = _ELSE.match(text, first.end) if text.startswith("(", condition.end()) else None
        second = self._rest(text, otherwise.end(), depth) if otherwise else _Found(first.end, lambda: None)
        return _Found(second.end, lambda: self._choose(condition, first, second))

    def _choose(self, condition: re.Match[str], first: _Found, second: _Found) -> None:
        """Reads the branch that is taken; where that is not known both, after which only what both leave alike is known.

        A variable that was not known before is taken to be what the one branch that sets it says.
        """
        holds = _holds(condition, lambda text: _DELAYED.sub(self._value, text))
        if holds is not None:
            (first if holds else second).run()
            return
        taken, left = self._branch(first), self._branch(second)
        for name in {**taken, **left}:
            before = self.variables.get(name)
            values = [value for value in dict.fromkeys((taken.get(name, before), left.get(name, before))) if value is not None]
            self._hold(name, values[0] if len(values) == 1 else None)
            if len(values) > 1:
                said = " or ".join(map(shown, values))
                self._tell(f"whether {name.upper()} is {said} depends on {shown(condition[0])}, which is not known here")

    def _branch(self, branch: _Found) -> dict[str, str | None]:
        """The variables that a branch sets, or unsets, which is undone."""
        outer, self._before = self._before, {}
        branch.run()
        made = {name: self.variables.get(name) for name in self._before}
        undone, self._before = self._before, None
        for name, value in undone.items():
            self._hold(name, value)
        self._before = outer
        return made

    def _hold(self, name: str, value: str | None) -> None:
        """Sets a variable, or makes it one that is not known."""
        if self._before is not None:
            self._before.setdefault(name, self.variables.get(name))
        if value is None:
            self.variables.pop(name, None)
        else:
            self.variables[name] = str(self.expansion.held(name.upper(), value))

    def _for(self, text: str, loop: re.Match[str], depth: int) -> _Found:
        closed = bracket_end(text, loop.end() - 1)
        do = _DO.match(text, closed)
        if not do:
            end = command_end(text, loop.start())
            return _Found(end, lambda: self._tell(f"{shown(text[loop.start() : end])} is a loop without a do"))
        values, start = text[loop.end() : closed - 1], do.end()
        body = self._rest(text, start, depth)
        return _Found(body.end, lambda: self._turn(loop, values, text[start : body.end], depth))

    def _turn(self, loop: re.Match[str], values: str, body: str, depth: int) -> None:
        """Reads what a loop does for each of its values; once, with its variable as it is written, where they are not known."""
        words = re.findall(r'"[^"]*"|[^\s,;="]+', _DELAYED.sub(self._value, values))
        if loop["how"] or any(map(_UNKNOWN.search, words)):
            head = shown(f"{loop[0]}{values})".replace(f" %{loop['name']} ", f" %%{loop['name']} ", 1))
            self._tell(f"{head} is a loop over what is not known here; %{loop['name']} stays as it is written")
            self._run_all(body, depth + 1)
            return
        name = re.compile(rf"%(~?){loop['name']}")
        for word in words:
            self._turns += 1
            if self._turns > MOST_TURNS:
                raise fail("for", f"loops go round more than {MOST_TURNS} times.", "Give the trainer's command alone.")
            put = {"": word, "~": word.strip('"')}
            self.expansion.put(body)
            self._run_all(name.sub(lambda found, put=put: str(self.expansion.put(put[found[1]])), body), depth + 1)

    def _plain(self, text: str) -> None:
        """Remembers what `set` says, and keeps the words of any other command."""
        command = _DELAYED.sub(self._value, text.strip())
        if found := _SET.match(command):
            self._set(found)
            return
        if _ELSEWHERE.match(command):
            self._tell(f"{shown(command)} is not followed")
        if jump := _JUMP.match(command):
            self._jump(jump, command)
        if words := words_of(_ARGUMENTS.sub("", command)):
            self._keep(words, command)

    def _jump(self, jump: re.Match[str], command: str) -> None:
        """Notes a jump, which is told if a command with settings comes behind it; one that may be taken only if its target runs any."""
        label = re.search(rf"(?im)^[ \t]*:[ \t]*{re.escape(jump['label'])}\b", self._text) if jump["label"] else None
        if self._before is None or (label and " --" in self._text[label.end() :]):
            self._jumps.append(f"{shown(command)} is not followed")

    def _keep(self, words: list[str], command: str) -> None:
        """Keeps a command with what is not known in it, but for what is told already."""
        uses = Uses()
        if any(word.startswith("--") for word in words):
            while self._jumps:
                self._tell(self._jumps.pop(0))
            uses.passed = dict.fromkeys(_ARGUMENTS.findall(command))
            unknown = [text for word in words for text in _UNREAD.findall(word)]
            uses.unknown = dict.fromkeys(text for text in unknown if not self._is_told(text.strip("%!")))
        self.statements.append(Statement(words, uses=uses))

    def _is_told(self, name: str) -> bool:
        return any(re.search(rf"(?i)\b{re.escape(name)} (?:is|stays) ", text) for text in self.unread)

    def _set(self, found: re.Match[str]) -> None:
        name, value, how = found["name"], found["value"], (found["how"] or "").strip().lower()
        if found["quote"]:
            value = value.rpartition('"')[0] or value
        plain = not found["operator"] if not how else how == "/a" and not found["operator"] and re.fullmatch(r"[ \t]*-?\d+[ \t]*", value)
        self._hold(name.lower(), (value.strip() if how else value) if plain and value else None)
        if not plain:
            self._tell(f"{shown(found[0])} gives what is not known here; {name} stays as it is written")

    def _tell(self, text: str) -> None:
        if text not in self.unread and len(self.unread) <= MOST_TOLD:
            self.unread.append(text if len(self.unread) < MOST_TOLD else "there is more that was not followed")


def _holds(condition: re.Match[str], expanded: Callable[[str], str]) -> bool | None:
    """Whether a comparison of two words for equality holds; None for others and where a variable in it is not known."""
    sign = (condition["sign"] or "").strip().lower()
    if sign not in ("==", "equ", "neq"):
        return None
    left, right = (expanded(condition[side]) for side in ("left", "right"))
    if _UNKNOWN.search(left + right):
        return None
    if condition["case"]:
        left, right = left.lower(), right.lower()
    same = int(left) == int(right) if sign != "==" and left.isdecimal() and right.isdecimal() else left == right
    return same ^ (sign == "neq") ^ bool(condition["not"])
