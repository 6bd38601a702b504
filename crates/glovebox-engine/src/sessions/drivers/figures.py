# Figures of matplotlib in a Python session: shown without a call, as a picture and as the data that was drawn.
#
# driver.py runs this in a namespace of its own when code imports matplotlib, with `show`, `utf8` and `watch` in it. The
# backend below draws as Agg does; what it adds is that `show` sends what there is. A backend that the user asks for is
# left alone, and its figures are sent at the end of the run all the same.
import io
import math
import sys
import types

POINTS = 5000  # Of one series.
SERIES = 100
TICKS = 50
BACKEND = "glovebox_figures"

figure_class = None


def set_up(matplotlib):
    """Makes our backend the one that is used when nothing is said."""
    import os

    sys.modules[BACKEND] = Backend(BACKEND)
    if "MPLBACKEND" not in os.environ:
        matplotlib.rcParams["backend"] = "module://" + BACKEND
    watch("matplotlib.axes._axes", note_boxes)


class Backend(types.ModuleType):
    """The module that matplotlib finds as its backend. Its parts are made when they are asked for, as importing them
    takes longer than importing matplotlib itself."""

    def __getattr__(self, name):
        if name.startswith("__") or "FigureCanvas" in vars(self):
            raise AttributeError(name)
        from matplotlib._pylab_helpers import Gcf
        from matplotlib.backend_bases import FigureManagerBase
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        class FigureManager(FigureManagerBase):
            def show(self):
                show_and_close([self])

        class FigureCanvas(FigureCanvasAgg):
            manager_class = FigureManager

        def new_figure_manager_given_figure(number, figure):
            return FigureManager(FigureCanvas(figure), number)

        def new_figure_manager(number, *arguments, FigureClass=Figure, **options):
            return new_figure_manager_given_figure(number, FigureClass(*arguments, **options))

        def show_all(*arguments, **options):
            show_and_close(Gcf.get_all_fig_managers())

        self.FigureCanvas = FigureCanvas
        self.FigureManager = FigureManager
        self.new_figure_manager = new_figure_manager
        self.new_figure_manager_given_figure = new_figure_manager_given_figure
        self.show = show_all
        return getattr(self, name)


def show_and_close(managers):
    from matplotlib._pylab_helpers import Gcf

    for manager in list(managers):
        show(manager.canvas.figure, "display")
        Gcf.destroy(manager)


def show_open():
    """Shows and closes what a run has left open."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is not None:
        show_and_close(helpers.Gcf.get_all_fig_managers())


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and issubclass(type(value), module.Figure)


def represent(figure, shown):
    """A figure as a picture, by the defaults that savefig has, and as data. A figure that is a value is not shown again
    at the end of the run."""
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format="png")
        shown["image/png"] = picture.getvalue()
        data = chart_of(figure)
        if data is not None:
            import json

            shown["application/vnd.glovebox.chart+json"] = utf8(json.dumps(data, ensure_ascii=False, allow_nan=False))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        shown["text/plain"] += utf8(" [not drawn: %s: %s]" % (type(error).__name__, error))
    manager = getattr(figure.canvas, "manager", None)
    if manager is not None:
        from matplotlib._pylab_helpers import Gcf

        Gcf.destroy(manager)


# The data of a figure.


def note_boxes(module):
    """Box plots are drawn as plain lines; what they mean is noted when they are made."""
    draw = module.Axes.bxp

    def bxp(self, bxpstats, *arguments, **options):
        artists = draw(self, bxpstats, *arguments, **options)
        try:
            for group in artists.values():
                for artist in group:
                    artist.glovebox_part_of_box = True
            self.glovebox_boxes = getattr(self, "glovebox_boxes", []) + list(bxpstats)
        except Exception:
            pass
        return artists

    bxp.__name__, bxp.__qualname__, bxp.__doc__ = draw.__name__, draw.__qualname__, draw.__doc__
    bxp.__wrapped__ = draw
    module.Axes.bxp = bxp


def chart_of(figure):
    """What was drawn: one chart, or all of them where there are several axes; None where nothing is understood."""
    charts = []
    for axes in figure.axes:
        if axes.get_label() == "<colorbar>":
            continue
        try:
            series = series_of(axes)
        except KeyboardInterrupt:
            raise
        except Exception:
            series = []
        if series:
            charts.append(described(axes, series))
    if len(charts) > 1:
        title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else ""
        return {"type": "figure", "title": title, "charts": charts}
    return charts[0] if charts else None


def described(axes, series):
    kinds = {one["type"] for one in series}
    chart = {"type": kinds.pop() if len(kinds) == 1 else "mixed", "title": axes.get_title()}
    if chart["type"] != "pie":
        chart["x"] = axis_of(axes.xaxis, axes.get_xlim())
        chart["y"] = axis_of(axes.yaxis, axes.get_ylim())
    chart["series"] = series[:SERIES]
    if len(series) > SERIES:
        chart["series_left_out"] = len(series) - SERIES
    return chart


def axis_of(axis, limits):
    labels = [tick.get_text() for tick in axis.get_ticklabels()[:TICKS]]
    return {
        "label": axis.get_label_text(),
        "scale": axis.get_scale(),
        "limits": values_of(axis, sorted(limits)),
        "ticks": [label.replace("\N{MINUS SIGN}", "-") for label in labels if label],
    }


def values_of(axis, numbers):
    """Numbers of an axis as what they stand for: categories, dates in ISO form, numbers; None for what is not finite."""
    mapping = getattr(axis.units, "_mapping", None)
    if mapping:
        names = {position: name for name, position in mapping.items()}
        return [names.get(number, plain(number)) for number in numbers]
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    if "Date" in type(converter).__name__ or "Time" in type(converter).__name__:
        dates = sys.modules["matplotlib.dates"]
        return [dates.num2date(n).replace(tzinfo=None).isoformat() if math.isfinite(n) else None for n in numbers]
    return [plain(number) for number in numbers]


def plain(number):
    number = number.item() if hasattr(number, "item") else number
    return number if isinstance(number, int) or (isinstance(number, float) and math.isfinite(number)) else None


def numbers_of(array):
    """At most POINTS numbers of an array, without its mask and its units."""
    import numpy

    array = array[:POINTS]
    if numpy.ma.isMaskedArray(array):
        array = array.astype(float).filled(numpy.nan)
    return numpy.asarray(array).tolist()


def one_series(kind, artist, points, total):
    label = artist.get_label() if artist is not None else ""
    series = {"type": kind, "label": label if isinstance(label, str) and not label.startswith("_") else "", "points": points}
    if total > len(points):
        series["points_left_out"] = total - len(points)
    return series


def pairs(axes, xs, ys):
    return [list(pair) for pair in zip(values_of(axes.xaxis, xs), values_of(axes.yaxis, ys))]


def series_of(axes):
    return boxes(axes) + wedges(axes) + bars(axes) + clouds(axes) + lines(axes) + images(axes)


def boxes(axes):
    found = []
    for number, stats in enumerate(getattr(axes, "glovebox_boxes", ()), 1):
        box = {"type": "box", "label": str(stats.get("label", number))}
        for name, key in (("min", "whislo"), ("q1", "q1"), ("median", "med"), ("q3", "q3"), ("max", "whishi")):
            box[name] = values_of(axes.yaxis, [stats[key]])[0]
        box["outliers"] = values_of(axes.yaxis, numbers_of(stats.get("fliers", ())))
        found.append(box)
    return found


def wedges(axes):
    from matplotlib.patches import Wedge

    slices = [patch for patch in axes.patches if isinstance(patch, Wedge)][:POINTS]
    points = [[patch.get_label(), round((patch.theta2 - patch.theta1) / 360, 6)] for patch in slices]
    return [one_series("pie", None, points, len(points))] if points else []


def bars(axes):
    from matplotlib.container import BarContainer

    found = []
    for container in axes.containers:
        if not isinstance(container, BarContainer) or not container.patches:
            continue
        rectangles = container.patches[:POINTS]
        if getattr(container, "orientation", None) == "horizontal":
            xs = [bar.get_width() for bar in rectangles]
            ys = [bar.get_y() + bar.get_height() / 2 for bar in rectangles]
        else:
            xs = [bar.get_x() + bar.get_width() / 2 for bar in rectangles]
            ys = [bar.get_height() for bar in rectangles]
        xs, ys = [round(x, 9) for x in xs], [round(y, 9) for y in ys]
        kind = "histogram" if touching(axes, rectangles) else "bar"
        found.append(one_series(kind, container, pairs(axes, xs, ys), len(container.patches)))
        if kind == "histogram":
            last = rectangles[-1]
            edges = [bar.get_x() for bar in rectangles] + [last.get_x() + last.get_width()]
            found[-1]["edges"] = values_of(axes.xaxis, edges)
    return found


def touching(axes, rectangles):
    """Whether bars stand side by side without a gap, as those of a histogram do."""
    if len(rectangles) < 2 or getattr(axes.xaxis.units, "_mapping", None):
        return False
    width = abs(rectangles[0].get_width())
    follows = zip(rectangles, rectangles[1:])
    return all(abs(a.get_x() + a.get_width() - b.get_x()) <= width / 1000 for a, b in follows)


def clouds(axes):
    from matplotlib.collections import PathCollection

    found = []
    for cloud in axes.collections:
        if isinstance(cloud, PathCollection):
            offsets = cloud.get_offsets()
            xs, ys = numbers_of(offsets[:, 0]), numbers_of(offsets[:, 1])
            found.append(one_series("scatter", cloud, pairs(axes, xs, ys), len(offsets)))
    return found


def lines(axes):
    found = []
    for line in axes.lines:
        if getattr(line, "glovebox_part_of_box", False) or line.get_transform() != axes.transData:
            continue  # Part of a box, or a rule across the axes.
        xs, ys = line.get_xdata(orig=False), line.get_ydata(orig=False)
        kind = "scatter" if line.get_linestyle() in ("None", "none", " ", "") else "line"
        found.append(one_series(kind, line, pairs(axes, numbers_of(xs), numbers_of(ys)), len(xs)))
    return found


def images(axes):
    found = []
    for image in axes.images:
        values = image.get_array()
        series = {"type": "heatmap", "label": "", "shape": list(values.shape)}
        if values.ndim == 2 and values.size <= POINTS:
            series["rows"] = [[plain(number) for number in numbers_of(row)] for row in values]
        found.append(series)
    return found
