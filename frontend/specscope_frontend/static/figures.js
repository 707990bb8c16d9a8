"use strict";
// Draws every [data-figure] with Plotly in the colours of the page's theme, and again when either changes.

(() => {
  const drawn = new WeakMap();

  /** Resolve a custom property to the colour that the theme gives it now. */
  function color(name) {
    const probe = document.createElement("span");
    probe.hidden = true;
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  function themed(figure) {
    const ink = color("ink-2");
    const axis = { color: ink, gridcolor: color("line"), linecolor: color("line-strong") };
    const data = figure.data.map((trace) => {
      const own = color(trace.meta.color);
      const dressed = { ...trace };
      if (trace.marker) dressed.marker = { ...trace.marker, color: own };
      if (trace.line) dressed.line = { ...trace.line, color: own };
      if (trace.marker?.line) dressed.marker.line = { ...trace.marker.line, color: color("panel") };
      if (trace.marker?.pattern)
        dressed.marker.pattern = { ...trace.marker.pattern, fgcolor: color("panel"), bgcolor: own };
      return dressed;
    });
    const layout = {
      ...figure.layout,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink },
      hoverlabel: { bgcolor: color("panel"), bordercolor: color("line-strong"), font: { color: color("ink") } },
    };
    for (const name of Object.keys(layout))
      if (/^[xy]axis\d*$/.test(name)) layout[name] = { ...layout[name], ...axis };
    return { data, layout };
  }

  function draw(holder) {
    let canvas = holder.firstElementChild;
    if (!canvas) {
      canvas = document.createElement("div");
      holder.append(canvas);
    }
    drawn.set(holder, holder.dataset.figure);
    const { data, layout } = themed(JSON.parse(holder.dataset.figure));
    Plotly.react(canvas, data, layout, { displayModeBar: false, responsive: true });
  }

  function drawAll(again) {
    for (const holder of document.querySelectorAll("[data-figure]"))
      if (again || drawn.get(holder) !== holder.dataset.figure) draw(holder);
  }

  document.addEventListener("htmx:after:swap", () => drawAll(false));
  document.addEventListener("specscope:theme", () => drawAll(true));
  drawAll(true);
})();
