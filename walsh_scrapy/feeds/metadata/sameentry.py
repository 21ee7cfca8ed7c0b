"""Which entries are one (decision 19): within a document, over visits, and between sources.

docs/identity.md has the rules, and what they cannot tell apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from walsh_scrapy.feeds.metadata.encoding import REPLACEMENT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.policy.entrykeys import EntryKeys

#: Dates of a document that lie within this many seconds are treated as one moment.
ONE_MOMENT_SECONDS: Final = 60
_DAY: Final = 86_400
#: The titles that are kept of an entry beside its present one.
MAX_FORMER_TITLES: Final = 6
#: Dates from this many seconds before a response on may have been made for the response.
_FRESH_SECONDS: Final = 300


@dataclass(slots=True, eq=False)
class KnownEntry:
    """An entry as a source listed it last."""

    key: str  #: of its row in the state
    source: str  #: the URL of the source that listed it
    keys: EntryKeys
    is_sighting: bool = False  #: whether its row is of another source
    #: Titles that differ from its own only by damaged characters.
    damaged_titles: set[str] = field(default_factory=set)

    def has_title(self, title: str | None) -> bool:
        """Return True if this is its title, or a copy of it with other damage."""
        return title == self.keys.title or title in self.damaged_titles


@dataclass(frozen=True, slots=True)
class Known:
    """The known entries that may be the same as entries of a document, when it is judged."""

    here: Sequence[KnownEntry] = ()  #: of its source
    elsewhere: Sequence[KnownEntry] = ()  #: of other sources, which list the same pages
    #: The ids and pages under which its source has listed several entries in one document.
    ambiguous: Collection[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an entry of a document is."""

    outcome: Literal["new", "known", "repeated"]
    keys: EntryKeys  #: without an id that proves nothing
    #: The known entry of its source that it is, if that is known there.
    entry: KnownEntry | None = None
    #: The keys that this known entry has from now on.
    latest: EntryKeys | None = None
    is_confirmed: bool = False  #: whether its id says that it is this entry
    #: The entry of another source that is the same, and was not known to be.
    elsewhere: KnownEntry | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the entries of a document are, in document order."""

    verdicts: tuple[Verdict, ...]
    #: The ids and pages that are ambiguous, and were not known to be.
    ambiguous: frozenset[str]
    #: Known entries of the source whose id turned out to prove nothing.
    unidentified: tuple[KnownEntry, ...]


# ---- dates ----


def with_evident_dates(
    entries: Sequence[EntryKeys], answered_at: float
) -> tuple[list[EntryKeys], bool]:
    """Return the entries without dates that prove nothing, and whether all dates are doubtful.

    `answered_at` is the `Date` of the response in epoch seconds. Some generators make new dates
    for every response. So the dates of a document with several entries are ignored if all of them
    lie within one minute, or if all are later than five minutes before the response. A date that
    several entries share is ignored for these entries.
    """
    distinct = set(entries)
    dates = [entry.date for entry in distinct if entry.date is not None]
    shared_dates = {date for date, number in Counter(dates).items() if number > 1}
    is_doubtful = len(distinct) > 1 and _are_doubtful(dates, answered_at)
    evident = []
    for entry in entries:
        proves_nothing = is_doubtful or entry.date in shared_dates
        evident.append(entry._replace(date=None) if proves_nothing else entry)
    return evident, is_doubtful


def _are_doubtful(dates: Collection[str], answered_at: float) -> bool:
    """Return True if all dates of a document may be the time at which the document was made."""
    if not dates:
        return False
    first, last = _seconds(min(dates)), _seconds(max(dates))
    is_one_moment = len(dates) > 1 and last - first <= ONE_MOMENT_SECONDS
    return is_one_moment or first >= answered_at - _FRESH_SECONDS


def _seconds(date: str) -> float:
    return datetime.fromisoformat(date).timestamp()


# ---- the judgement ----


def judge(
    entries: Sequence[EntryKeys], known: Known, *, has_doubtful_dates: bool = False
) -> Judgement:
    """Decide what the entries of one document are.

    `has_doubtful_dates` means that all dates may have been made for the response.
    """
    by_id = {entry.keys.id: entry for entry in known.here if entry.keys.id is not None}
    ambiguous_ids = _shared_ids(entries) | _contradicted_ids(entries, by_id)
    proves_nothing = ambiguous_ids.union(known.ambiguous)
    here = [
        replace(entry, keys=entry.keys.without_id) if entry.keys.id in proves_nothing else entry
        for entry in known.here
    ]
    judged = [entry.without_id if entry.id in proves_nothing else entry for entry in entries]
    kept = _distinct(judged)
    pages = Counter(judged[place].page for place in kept)
    several = {page for page, number in pages.items() if number > 1}
    document = _Document(
        [judged[place] for place in kept],
        replace(known, here=here, ambiguous=several.union(known.ambiguous)),
        has_doubtful_dates=has_doubtful_dates,
    )
    verdicts = [Verdict("repeated", keys) for keys in judged]
    for place, verdict in zip(kept, document.verdicts(), strict=True):
        verdicts[place] = verdict
    return Judgement(
        tuple(verdicts),
        frozenset((ambiguous_ids | several).difference(known.ambiguous)),
        tuple(new for new, old in zip(here, known.here, strict=True) if new is not old),
    )


def _shared_ids(entries: Iterable[EntryKeys]) -> set[str]:
    """Return the ids that entries with different links or titles share."""
    links: defaultdict[str, set[str]] = defaultdict(set)
    titles: defaultdict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if entry.id is not None and entry.linkless_page is None:
            links[entry.id].add(entry.page)
        if entry.id is not None and entry.title is not None:
            titles[entry.id].add(entry.title)
    return {id_ for by_id in (links, titles) for id_, values in by_id.items() if len(values) > 1}


def _contradicted_ids(entries: Iterable[EntryKeys], by_id: Mapping[str, KnownEntry]) -> set[str]:
    """Return the ids of known entries that nothing else in the document confirms."""
    return {
        entry.id
        for entry in entries
        if entry.id is not None and entry.id in by_id and not _confirms(entry, by_id[entry.id])
    }


def _confirms(entry: EntryKeys, known: KnownEntry) -> bool:
    """Return True if link, title or date is the same; a field that one entry lacks is ignored."""
    equal = []
    if entry.linkless_page is None and known.keys.linkless_page is None:
        equal.append(entry.page == known.keys.page)
    if entry.title is not None and known.keys.title is not None:
        equal.append(known.has_title(entry.title))
    if entry.date is not None and known.keys.date is not None:
        equal.append(entry.date == known.keys.date)
    return any(equal) or not equal


def _distinct(entries: Sequence[EntryKeys]) -> list[int]:
    """Return the places of the different entries of a document, in document order.

    Entries with different ids are different. An entry without an id is the same as one with its
    page, title and date. An entry without a title or a date is the same as one with any title or
    date, so those with more fields are compared first. Of those with one id, the same one is kept
    in whatever order they are listed.
    """
    previous: set[_Place] = set()
    ids: set[str] = set()
    places = []

    for place in sorted(range(len(entries)), key=lambda place: _order(entries[place])):
        entry = entries[place]
        if entry.id in ids or (
            entry.id is None and not previous.isdisjoint(_places_of_same(entry))
        ):
            continue
        if entry.id is not None:
            ids.add(entry.id)
        previous.update(_places_of(entry, (entry.title,)))
        places.append(place)
    return sorted(places)


def _order(entry: EntryKeys) -> tuple[bool, bool, bool, bool, str]:
    """Return the order in which entries are judged, whatever the order of their document."""
    has_no_link = entry.linkless_page is not None
    has_no_date, has_no_title = entry.date is None, entry.title is None
    return entry.id is None, has_no_link, has_no_date, has_no_title, entry.date or ""


class _Document:
    """The different entries of a document, beside what is known."""

    def __init__(
        self, entries: Sequence[EntryKeys], known: Known, *, has_doubtful_dates: bool
    ) -> None:
        self._entries = entries
        self._ambiguous = known.ambiguous
        # A known id moves its entry to the page where the document has it: whatever else has the
        # page that it had is another entry, now and at the next visit.
        listed = {entry.id: entry for entry in entries if entry.id is not None}
        here = [
            replace(entry, keys=_listed_last(listed[entry.keys.id], entry))
            if entry.keys.id in listed
            else entry
            for entry in known.here
        ]
        self._here = _Index(here)
        self._elsewhere = _Index(known.elsewhere)
        self._by_id = {entry.keys.id: entry for entry in here if entry.keys.id is not None}
        confirmed = [self._by_id[entry.id] for entry in entries if entry.id in self._by_id]
        self._has_known_ids = bool(confirmed)
        # A generator that makes new dates for every response may make new ids too.
        self._ignores_ids = (
            has_doubtful_dates
            and not confirmed
            and any(self._here.has_title(entry) for entry in entries)
        )
        self._here.take(confirmed)
        self._elsewhere.take(here)
        self._sighted = {known.keys[:3] for known in here if known.is_sighting}

    def verdicts(self) -> list[Verdict]:
        """Return what each entry is. A known entry is one entry of the document."""
        if not len(self._here) + len(self._elsewhere):
            return [Verdict("new", entry) for entry in self._entries]
        verdicts = {
            place: self._verdict(self._entries[place])
            for place in sorted(range(len(self._entries)), key=lambda at: _order(self._entries[at]))
        }
        return [verdicts[place] for place in range(len(self._entries))]

    def _verdict(self, entry: EntryKeys) -> Verdict:
        if entry.id in self._by_id:
            known = self._by_id[entry.id]
            elsewhere = self._find_elsewhere(entry, known)
            return Verdict("known", entry, known, _listed_last(entry, known), True, elsewhere)
        known_here = self._find_here(entry)
        elsewhere = self._find_elsewhere(entry, known_here)
        if known_here is None:
            return Verdict("known" if elsewhere else "new", entry, elsewhere=elsewhere)
        self._here.take([known_here])
        latest = self._latest(entry, known_here)
        return Verdict("known", entry, known_here, latest, elsewhere=elsewhere)

    def _find_here(self, entry: EntryKeys) -> KnownEntry | None:
        """Return the known entry of the source that this one is, although its id is not known."""
        if entry.id is not None and not self._ignores_ids:
            # A changed id, or a random one. But beside known ids, on a page that has several
            # entries, it is one entry more.
            is_another = self._has_known_ids and entry.page in self._ambiguous
            return None if is_another else self._here.find(_places_of_same(entry))
        if entry.page in self._ambiguous or entry.page == entry.linkless_page:
            return self._here.find(_places_of_same(entry))
        if len(self._entries) == 1 and _is_another(entry, self._here.of_page(entry)):
            return None
        return self._here.find([*_places_of_same(entry), (entry.page, _ANY, _ANY)])

    def _latest(self, entry: EntryKeys, known: KnownEntry) -> EntryKeys:
        """Return the keys that a known entry has from now on.

        An id is replaced if the document has no known id: its generator may have changed.
        """
        is_of_page = entry.id is None and entry.page not in self._ambiguous
        if is_of_page:
            return _listed_last(entry, known)
        keys = known.keys
        may_replace = keys.id is None or not self._has_known_ids
        return keys._replace(
            id=entry.id if entry.id is not None and may_replace else keys.id,
            title=keys.title or entry.title,
            date=keys.date or entry.date,
        )

    def _find_elsewhere(self, entry: EntryKeys, known: KnownEntry | None) -> KnownEntry | None:
        """Return the entry of another source that is the same.

        An entry of another source is one entry of this source, so it is returned once.
        """
        if not len(self._elsewhere):
            return None
        if known is not None and (known.is_sighting or entry[:3] in self._sighted):
            return None
        places = [(entry.page, entry.id), *_places_of_same(entry)]
        if entry.id is None:
            del places[0]
            if entry.page not in self._ambiguous and not self._here.of_page(entry):
                places.append((entry.page, None))
        found = self._elsewhere.find(places)
        if found is not None:
            self._elsewhere.take([found])
        return found


def _listed_last(entry: EntryKeys, known: KnownEntry) -> EntryKeys:
    """Return the keys of a known entry as a document has it; what it lacks stays."""
    keys = known.keys
    title = keys.title if known.has_title(entry.title) else entry.title or keys.title
    if entry.linkless_page is not None:
        entry = entry._replace(page=keys.page, linkless_page=keys.linkless_page)
    return entry._replace(id=keys.id, title=title, date=entry.date or keys.date)


def _is_another(entry: EntryKeys, of_page: Sequence[KnownEntry]) -> bool:
    """Return True if the only entry of a document is not one of those that its page had before.

    Its title is another one, and its date says nothing, or is later.
    """
    if entry.title is None or any(known.has_title(entry.title) for known in of_page):
        return False
    dates = [known.keys.date for known in of_page if known.keys.date is not None]
    if entry.date is None or not dates:
        return True
    return _seconds(entry.date) - _seconds(max(dates)) > ONE_MOMENT_SECONDS


#: A place in an index of entries: a page with a title and a date, or with an id.
_Place: TypeAlias = tuple[str | None, ...]
_ANY: Final = "any"


def _places_of(keys: EntryKeys, titles: Iterable[str | None]) -> Iterator[_Place]:
    """Yield the places at which an entry with these titles is put, so that it is found."""
    for title in (*titles, _ANY):
        yield keys.page, title, keys.date
        yield keys.page, title, _ANY
    yield keys.page, keys.id


def _places_of_same(entry: EntryKeys) -> list[_Place]:
    """Return the places of entries with its page, title and date, the most similar ones first.

    Titles, and dates, differ only if both entries have one.
    """
    titles = (_ANY,) if entry.title is None else (entry.title, None)
    dates = (_ANY,) if entry.date is None else (entry.date, None)
    return [(entry.page, title, date) for title in titles for date in dates]


class _Index:
    """Known entries by their places. A look-up takes the same time however many there are."""

    def __init__(self, entries: Sequence[KnownEntry]) -> None:
        self._entries = entries
        self._begins: Counter[_Place] = Counter()  # before that, all entries of a place are taken
        self._taken: set[str] = set()

    @cached_property
    def _places(self) -> Mapping[_Place, Sequence[KnownEntry]]:
        """The entries at each place; most documents have known ids alone, and need none."""
        places: defaultdict[_Place, list[KnownEntry]] = defaultdict(list)
        for entry in self._entries:
            for place in _places_of(entry.keys, {entry.keys.title, *entry.damaged_titles}):
                places[place].append(entry)
        return places

    def __len__(self) -> int:
        return len(self._entries)

    def of_page(self, entry: EntryKeys) -> Sequence[KnownEntry]:
        """Return the entries with its page."""
        return self._places.get((entry.page, _ANY, _ANY), ())

    def has_title(self, entry: EntryKeys) -> bool:
        """Return True if an entry has its page and its title."""
        return entry.title is not None and (entry.page, entry.title, _ANY) in self._places

    def take(self, entries: Iterable[KnownEntry]) -> None:
        """Note that these entries are entries of the document."""
        self._taken.update(entry.key for entry in entries)

    def find(self, places: Iterable[_Place]) -> KnownEntry | None:
        """Return an entry at one of these places that is not taken."""
        for place in places:
            entries = self._places.get(place, ())
            begin = self._begins[place]
            while begin < len(entries) and entries[begin].key in self._taken:
                begin += 1
            self._begins[place] = begin
            if begin < len(entries):
                return entries[begin]
        return None


# ---- changed titles ----


class TitleChange(NamedTuple):
    """The titles that an entry had before its present one, and its last change. Epoch seconds."""

    former: tuple[str, ...] = ()  #: the latest one first; the last one is its first title
    at: float | None = None  #: when it changed last, None for never
    #: its place in the order in which readers get changes, None until it has one, 0 for a change
    #: that was taken back
    number: int | None = None
    #: when readers get the title once more, because it changed again within a day
    again_at: float | None = None


def change_title(present: str, title: str, change: TitleChange, now: float) -> TitleChange | None:
    """Return the change of an entry that a document lists with a title; None if there is none.

    ``present`` is the title that it had until now. A damaged copy of that is the same title. A
    title that returns is no change, and takes back one that no reader gets yet. An entry changes at
    most once a day: of more titles the last one counts, and readers that got another one get it
    when the day is over.
    """
    if not title or not present or title == present:
        return None
    if is_damaged_copy(title, of=present) or is_damaged_copy(present, of=title):
        return None
    others = [former for former in change.former[:-1] if former not in (title, present)]
    former = (present, *others[: MAX_FORMER_TITLES - 2], *change.former[-1:])
    if title in change.former:
        keeps_number = change.number is not None and title != change.former[-1]
        return TitleChange(former, change.at, change.number if keeps_number else 0)
    if change.at is None or abs(now - change.at) >= _DAY:
        return TitleChange(former, now)
    again_at = None if change.number is None else change.at + _DAY
    return TitleChange(former, change.at, change.number, again_at)


# ---- damaged titles ----


def is_damaged_copy(damaged: str, *, of: str) -> bool:
    """Return True if a title is another title, `of`, in which more characters became U+FFFD.

    Each U+FFFD stands for one byte, so for at most one character. Several may stand for one
    character.
    """
    if damaged.count(REPLACEMENT) <= of.count(REPLACEMENT):
        return False
    # The bits of a number are places in `of`: where each character is, and how far `of` matches.
    places: defaultdict[str, int] = defaultdict(int)
    for place, character in enumerate(of):
        places[character] |= 1 << place
    matched_lengths = 1
    for character in damaged:
        if character == REPLACEMENT:
            matched_lengths |= matched_lengths << 1
        else:
            matched_lengths = (matched_lengths & places[character]) << 1
    return bool(matched_lengths >> len(of) & 1)
