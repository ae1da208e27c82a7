"""Aliases: names that are written in two ways, and words that only link sentences."""

from __future__ import annotations

from ragfault.text import stem

__all__ = ["ALIASES", "LINKS"]

STATES = """
alabama al|alaska ak|arizona az|arkansas ar|california ca|california calif|colorado co|connecticut ct|delaware de
florida fl|georgia ga|hawaii hi|idaho id|illinois il|indiana in|iowa ia|kansas ks|kentucky ky|louisiana la
maine me|maryland md|massachusetts ma|michigan mi|minnesota mn|mississippi ms|missouri mo|montana mt|nebraska ne
nevada nv|ohio oh|oklahoma ok|oregon or|pennsylvania pa|tennessee tn|texas tx|utah ut|vermont vt|virginia va
washington wa|wisconsin wi|wyoming wy|governor gov|senator sen|doctor dr|street st|avenue ave|road rd|boulevard blvd
mount mt|saint st|january jan|february feb|august aug|september sept|september sep|october oct|november nov
december dec|monday mon|tuesday tue|tuesday tues|wednesday wed|thursday thu|thursday thur|friday fri|saturday sat
sunday sun|television tv|television tvs|company co|corporation corp|incorporated inc|limited ltd|number no
kilogram kg|kilometer km|kilometre km|meter m|centimeter cm|millimeter mm|gram g|milligram mg|liter l|pound lb
pound lbs|ounce oz|foot ft|feet ft|inch in|mile mi|hour hr|minute min|second sec|percent percentage|okay ok
versus vs|photograph photo|telephone phone|examination exam|automobile car|approximate about
united us|united usa|states us|states usa|america us|america usa|britain uk|kingdom uk|vietnam viet
"""
ALIASES: dict[str, frozenset[str]] = {}
for _row in STATES.replace("\n", "|").split("|"):
    if _row:
        _one, _two = map(stem, _row.split())
        ALIASES[_one] = ALIASES.get(_one, frozenset()) | {_two}
        ALIASES[_two] = ALIASES.get(_two, frozenset()) | {_one}

LINKING = """
additionally also altogether besides consequently essentially finally firstly furthermore generally hence
however importantly indeed instead interestingly lastly likewise meanwhile moreover namely nevertheless
nonetheless notably otherwise overall particularly secondly similarly specifically subsequently thereby
therefore thirdly thus ultimately according including include based given provide provided mention mentioned passage
note noted following example respectively
"""
LINKS = frozenset(map(stem, LINKING.split()))
"""Words that carry an argument from sentence to sentence and say nothing about the world."""
