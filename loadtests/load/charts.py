"""Charts as SVG text: lines over time, and horizontal bars. No scripts, no files, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f", "#475569")
WIDTH, HEIGHT = 560, 220
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 28, 46
Points = Sequence[tuple[float, float]]


def lines(title: str, series: Mapping[str, Points], unit: str) -> str:
    """Lines over seconds, with a legend below."""
    points = [point for each in series.values() for point in each]
    right = max((x for x, _ in points), default=1.0) or 1.0
    top = nice(max((y for _, y in points), default=1.0))
    parts = [_grid(title, right, top, unit)]
    for index, each in enumerate(series.values()):
        path = " ".join(f"{_x(x, right):.1f},{_y(y, top):.1f}" for x, y in each)
        parts.append(f'<polyline fill="none" stroke="{_colour(index)}" stroke-width="1.5" points="{path}"/>')
    parts.append(_legend(list(series)))
    return _svg("".join(parts), HEIGHT)


def bars(title: str, values: Mapping[str, float], unit: str) -> str:
    """One bar a name, the longest as wide as the chart."""
    top = max(values.values(), default=1.0) or 1.0
    parts = [_text(8, 16, title, weight="bold")]
    for index, (name, value) in enumerate(values.items()):
        y = 30 + 18 * index
        width = max(1.0, value / top * (WIDTH - 260))
        parts.append(_text(8, y + 10, name))
        parts.append(f'<rect x="150" y="{y}" width="{width:.1f}" height="13" fill="{_colour(index)}"/>')
        parts.append(_text(156 + width, y + 10, f"{value:.4g} {unit}"))
    return _svg("".join(parts), 40 + 18 * len(values))


def nice(value: float) -> float:
    """The next round number: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _x(value: float, right: float) -> float:
    return LEFT + value / right * (WIDTH - LEFT - RIGHT)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)


def _grid(title: str, right: float, top: float, unit: str) -> str:
    parts = [_text(8, 16, f"{title}, {unit}", weight="bold")]
    for step in range(5):
        y = _y(top * step / 4, top)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e2e8f0"/>')
        parts.append(_text(LEFT - 4, y + 4, f"{top * step / 4:g}", anchor="end"))
        x = _x(right * step / 4, right)
        parts.append(_text(x, HEIGHT - BOTTOM + 14, f"{right * step / 4:.4g} s", anchor="middle"))
    return "".join(parts)


def _legend(names: Sequence[str]) -> str:
    parts, x, y = [], float(LEFT), HEIGHT - 17
    for index, name in enumerate(names):
        if x + 12 + 6.2 * len(name) > WIDTH:
            x, y = float(LEFT), y + 13
        parts.append(f'<rect x="{x:.0f}" y="{y - 8}" width="9" height="9" fill="{_colour(index)}"/>')
        parts.append(_text(x + 12, y, name))
        x += 26 + 6.2 * len(name)
    return "".join(parts)


def _text(x: float, y: float, said: str, *, anchor: str = "start", weight: str = "normal") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {place}>{escape(said)}</text>"


def _svg(inside: str, height: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="11">{inside}</svg>'
    )
