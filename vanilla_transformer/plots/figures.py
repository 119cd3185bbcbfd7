"""Shared by all pictures: paper, ink, axes, legends and files."""

import bisect
import colorsys
import functools
import itertools
import logging
import os
import re
import unicodedata
import warnings
from collections.abc import Iterable
from pathlib import Path

from packaging.version import Version

from ..data.scripts import is_mark
from ..files import check_replaceable, replaced_path


logger = logging.getLogger(__name__)

# People with any kind of colour vision can tell them apart, and in grey by brightness (Okabe and Ito 2008).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#A08A00")

_LINE_STYLES = ("-", "--", "-.", ":")
_DOTS_PER_INCH = 150
_LONGEST_TOKEN = 18  # characters of a tick label; longer tokens would leave the picture no room
_REGULAR = (400, "normal", "regular", "book")  # weights of fonts
# Scripts whose letters join, change places or carry marks: Hebrew, Arabic, and those of India and South-East Asia.
_SHAPED = re.compile("[\u0590-\u109f\u1780-\u17ff\ufb1d-\ufdff\ufe70-\ufefe]")
_MARKED_POINTS = 80  # curves of up to this many points have dots too: a single point makes no line


def new_figure(width: float, height: float, title: str, layout: str = "constrained"):
    """Returns a figure of this size in inches; either layout keeps labels apart."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    if title:
        figure.suptitle(title, fontsize=13, parse_math=False)
    return figure


def finish_axes(axes, *, whole_numbers: bool) -> None:
    """Sets a grid, two open sides, and a few round numbers below."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=whole_numbers, min_n_ticks=1))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if whole_numbers else "{x:,g}"))


def add_legend(axes_or_figure, corner: str, **choices) -> None:
    """Adds a legend without a frame. A dollar sign in a label stays a dollar sign, and does not begin a formula."""
    for text in axes_or_figure.legend(loc=corner, frameon=False, **choices).get_texts():
        text.set_parse_math(False)


def color_of(place: int) -> str:
    """The colour of the line with this number: one of `COLORS`, and after them others of alternating brightness."""
    if place < len(COLORS):
        return COLORS[place]
    # Steps of the golden ratio around the circle of hues come near no earlier hue for long.
    shares = colorsys.hls_to_rgb(place * 0.618 % 1, (0.3, 0.7)[place % 2], 0.6)
    return "#" + "".join(f"{round(255 * share):02X}" for share in shares)


def look_of(place: int) -> dict:
    """Colour and dashes of the line with this number, where lines cross each other; the first 32 differ."""
    turn = place + place // len(COLORS)  # colours and dashes do not repeat together
    return {"color": color_of(place), "linestyle": _LINE_STYLES[turn % len(_LINE_STYLES)]}


def marker(values) -> str:
    return "o" if len(values) <= _MARKED_POINTS else ""


@functools.cache
def _font_with(character: str) -> str | None:
    """The name of a font that has the character: the usual one, else the first installed font, if any."""
    from matplotlib import font_manager

    usual = font_manager.findfont(font_manager.FontProperties())
    fonts = font_manager.fontManager.ttflist
    fonts = sorted(fonts, key=lambda font: (font.fname != usual, font.style != "normal", font.weight not in _REGULAR))
    faces: dict[str, str] = {}  # one per family
    for font in fonts:
        faces.setdefault(font.name, font.fname)
    for name, path in faces.items():
        # That font has one picture for all characters of a script.
        if not name.startswith("Last Resort") and font_manager.get_font(path).get_char_index(ord(character)):
            return name
    return None


def fonts_for(labels: Iterable[str]) -> list[str]:
    """The usual fonts, and those that the labels also need."""
    from matplotlib import rcParams

    found = {_font_with(character) for label in labels for character in label} - {None}
    return [*rcParams["font.family"], *sorted(found)]


def _drawable(character: str) -> str:
    return character if _font_with(character) else f"<U+{ord(character):04X}>"


def printable(text: str, longest: int | None = _LONGEST_TOKEN) -> str:
    """The text as a label: one short line of characters that can be drawn.

    Control characters are escaped, except for joiners within words; a character that no installed font has becomes its
    number, `<U+65E5>`.
    """
    joined = any(map(str.isalpha, text))
    visible = [
        c.encode("unicode_escape").decode() if not (c.isprintable() or (joined and is_mark(c))) else _drawable(c)
        for c in text
    ]
    ends = list(itertools.accumulate(map(len, visible)))
    if not ends or longest is None or ends[-1] <= longest:
        return "".join(visible)
    whole = bisect.bisect_right(ends, longest - 1)  # a character's text is not cut
    while whole and is_mark(text[whole]):  # nor are its marks
        whole -= 1
    return "".join(visible[:whole]) + "…"


def _set_fonts(figure) -> None:
    """Gives every text of a figure the fonts that it needs, and warns once of text that cannot be drawn as written."""
    import matplotlib
    from matplotlib.text import Text

    shown = ""
    for text in figure.findobj(Text):
        if not (written := text.get_text()).isascii():
            text.set_text("".join(c if c == "\n" else _drawable(c) for c in written))
            text.set_fontfamily(fonts_for([text.get_text()]))
        shown += text.get_text()
    numbers = {chr(int(number, 16)) for number in re.findall("<U\\+([0-9A-F]{4,6})>", shown)}
    if lacking := _one_of_each_script(c for c in numbers if not _font_with(c)):
        logger.warning(
            f"No installed font has {lacking}: their code points are drawn instead. Install a font that has them, say "
            f"one of Google's Noto fonts, and remove matplotlib's list of fonts in {matplotlib.get_cachedir()}."
        )
    complex_ones = _one_of_each_script(_SHAPED.findall(shown))
    if complex_ones and Version(matplotlib.__version__) < Version("3.11"):
        logger.warning(
            f"matplotlib {matplotlib.__version__} writes every letter by itself, from left to right, also "
            f"{complex_ones}: take 3.11 or newer."
        )


def _one_of_each_script(characters: Iterable[str]) -> str:
    """The scripts of some characters, each with the first of them: `THAI letters, say แ (U+0E41)`."""
    scripts: dict[str, str] = {}
    for character in sorted(set(characters)):
        scripts.setdefault(unicodedata.name(character, "unnamed").split()[0].partition("-")[0], character)
    return "; ".join(f"{script} letters, say {each} (U+{ord(each):04X})" for script, each in scripts.items())


def check_picture(path: str | os.PathLike) -> None:
    """Checks that a picture can be written there, before any work that would be lost.

    Raises:
        ValueError: The file's name does not end in .png or .svg.
        IsADirectoryError: It is a folder.
        FileNotFoundError: Its folder does not exist.
    """
    if Path(path).suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"{path}: pictures are written to files whose names end in .png or .svg.")
    check_replaceable(Path(path))


def save(figure, path: str | os.PathLike) -> None:
    """Writes the figure beside its place and moves it there; raises what `check_picture` does, or OSError."""
    check_picture(path)
    form = Path(path).suffix.lower().removeprefix(".")
    metadata = {"Date": None} if form == "svg" else {}
    _set_fonts(figure)
    with replaced_path(Path(path)) as unfinished, warnings.catch_warnings():
        # For a control character in a title, or characters that `_set_fonts` has warned of.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        figure.savefig(unfinished, format=form, dpi=_DOTS_PER_INCH, bbox_inches="tight", metadata=metadata)
