"""A matplotlib figure as inline SVG that follows the theme of the page, or as PNG."""

import io
import re

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from crosslane_lab.render.style import PAPER, THEMED, house_style

_RASTER_DPI = 200
"""Dense scatter plots are embedded as pictures of this resolution; all else is lines and text."""


def svg(figure: Figure, key: str, alt: str) -> str:
    """The figure as an `<svg>` element. `key` makes its ids unique; `alt` is the text for screen readers."""
    out = io.StringIO()
    with house_style():
        FigureCanvasSVG(figure)
        figure.savefig(out, format="svg", dpi=_RASTER_DPI, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>{key}-", text)
    text = re.sub(r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*", r"font: \1var(--font)", text)
    for colour, variable in THEMED.items():
        text = text.replace(colour, f"var({variable})")
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    return text.replace("<svg", f'<svg role="img" aria-label="{_attribute(alt)}"', 1)


def png(figure: Figure, pixels_per_inch: int = 100) -> bytes:
    """The figure as PNG on white, 1200 px wide by default."""
    out = io.BytesIO()
    with house_style():
        figure.set_facecolor(PAPER)
        figure.set_dpi(pixels_per_inch)
        FigureCanvasAgg(figure).print_png(out)
    return out.getvalue()


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
