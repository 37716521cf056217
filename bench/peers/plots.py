"""A plot with two logarithmic axes, as a text of SVG: a line for each store."""
import html
import math

WIDTH, HEIGHT = 800, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 20, 50
COLOURS = ["#0072b2", "#d55e00", "#e69f00", "#999999", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#f04060"]


def powers(least, most):
    """Of ten, around both."""
    return [10 ** i for i in range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)]


def shown(value):
    return "%d,000,000" % (value // 1000000) if value >= 1000000 else "%d,000" % (value // 1000) if value >= 1000 else "%g" % value


def scale(ticks, start, end):
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    return lambda value: start + (math.log10(value) - low) / max(high - low, 1) * (end - start)


def text(x, y, words, anchor="start", turn=""):
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' % (x, y, anchor, turn, html.escape(words))


def svg(across, upwards, lines):
    """`lines`: [(name, [(x, y)])], all of them above 0; one without points has its colour, and is not drawn."""
    colours = {name: COLOURS[i % len(COLOURS)] for i, (name, _) in enumerate(lines)}
    lines = [line for line in lines if line[1]]
    x_ticks = powers(min(x for _, points in lines for x, _ in points), max(x for _, points in lines for x, _ in points))
    y_ticks = powers(min(y for _, points in lines for _, y in points), max(y for _, points in lines for _, y in points))
    x_of, y_of = scale(x_ticks, LEFT, WIDTH - RIGHT), scale(y_ticks, HEIGHT - BOTTOM, TOP)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">' % (WIDTH, HEIGHT),
           '<rect width="100%" height="100%" fill="#fff"/>']
    for x in x_ticks:
        out.append('<path d="M%.1f %d V%d" stroke="#ddd"/>' % (x_of(x), TOP, HEIGHT - BOTTOM))
        out.append(text(x_of(x), HEIGHT - BOTTOM + 18, shown(x), "middle"))
    for y in y_ticks:
        out.append('<path d="M%d %.1f H%d" stroke="#ddd"/>' % (LEFT, y_of(y), WIDTH - RIGHT))
        out.append(text(LEFT - 8, y_of(y) + 4, shown(y), "end"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, across, "middle"))
    out.append(text(16, (TOP + HEIGHT - BOTTOM) / 2, upwards, "middle", ' transform="rotate(-90 16 %.1f)"' % ((TOP + HEIGHT - BOTTOM) / 2)))
    for i, (name, points) in enumerate(lines):
        colour = colours[name]
        path = " ".join("%s%.1f %.1f" % ("L" if k else "M", x_of(x), y_of(y)) for k, (x, y) in enumerate(points))
        out.append('<path d="%s" fill="none" stroke="%s" stroke-width="2"/>' % (path, colour))
        out += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (x_of(x), y_of(y), colour) for x, y in points]
        out.append('<path d="M%d %d h20" stroke="%s" stroke-width="3"/>' % (WIDTH - RIGHT + 15, TOP + 12 + 22 * i, colour))
        out.append(text(WIDTH - RIGHT + 42, TOP + 16 + 22 * i, name))
    return "\n".join(out + ["</svg>", ""])
