"""Words that carry no finding: what novelty and grounding do not count as evidence."""

from __future__ import annotations

from typing import Final

__all__ = ["ACKNOWLEDGEMENT", "NEGATION", "UNINFORMATIVE"]

_NEGATION: Final = """
can't cannot couldn't denied didn't doesn't empty error errors fail failed failure false invalid isn't missing never no
nobody none not nothing null rejected unable unavailable unknown wasn't weren't without zero
"""

_FUNCTION_WORDS: Final = """
a about again also an and any are as at be been but by can could data did do does each for found from had has have he
her his how i if in into is it its let may me might more must my of on or our out over per please she should so some
sorry such than that the their them there these they this those to up us was we were what when where which while who
whom whose why will with would you your
"""

_RESULT_WORDS: Final = """
attempt attempted attempts available count entries entry exist existing exists information item items key keys list
located match matched matches matching name output page queries query record records request requested response result
results retry returned returns row rows search searched searching status still try trying value values
"""

_ACKNOWLEDGEMENT: Final = """
accepted acknowledged added applied approved attached canceled cancelled closed completed confirmed created deleted done
inserted ok okay queued recorded removed saved scheduled sent stored submitted succeeded success successful successfully
true updated uploaded written yes
"""

NEGATION: Final = frozenset(_NEGATION.split())
"""Words of a result that says there is nothing."""

UNINFORMATIVE: Final = NEGATION | frozenset(_FUNCTION_WORDS.split()) | frozenset(_RESULT_WORDS.split())
"""Function words, and the vocabulary of results that say nothing was found."""

ACKNOWLEDGEMENT: Final = frozenset(_ACKNOWLEDGEMENT.split())
"""Words with which a tool says that it did what was asked."""
