// Draws every .chart of the page with uPlot. The data are what report_page.cpp writes of a LinePlot.
(function () {
  'use strict';

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function shortNumber(value) {
    if (value == null || !isFinite(value)) return '–';
    const size = Math.abs(value);
    for (const [from, suffix] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M']]) {
      if (size >= from) return Number((value / from).toPrecision(4)) + suffix;
    }
    return String(size >= 1e4 ? Math.round(value) : Number(value.toPrecision(4)));
  }

  // Lines have places of their own on the x axis; uPlot wants one axis for all.
  function table(data) {
    const sets = data.lines.map((line) => [line.x, line.y]);
    if (data.limit !== undefined) {
      const all = data.lines.flatMap((line) => line.x);
      const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
      if (all.length) sets.push([low === high ? [low] : [low, high], low === high ? [data.limit] : [data.limit, data.limit]]);
    }
    return sets.length === 1 ? sets[0] : uPlot.join(sets);
  }

  function scaleOf(kind) {
    return kind === 'linear' ? {time: false} : {time: false, distr: 3, log: kind === 'log2' ? 2 : 10};
  }

  function axis(label, size) {
    return {
      label, labelSize: 20, labelFont: '12px system-ui, sans-serif', font: '12px system-ui, sans-serif', stroke: color('--soft'), size,
      grid: {stroke: color('--line'), width: 1}, ticks: {stroke: color('--line'), width: 1},
      values: (plot, ticks) => ticks.map((tick) => (tick == null ? '' : shortNumber(tick))),
    };
  }

  function series(line) {
    const one = {
      label: line.name, stroke: color('--c' + line.hue), width: 2, spanGaps: false, dash: line.dashed ? [6, 4] : undefined,
      points: {show: line.marked || line.x.length === 1, size: 7, fill: color('--c' + line.hue)},
      value: (plot, value) => shortNumber(value),
    };
    if (line.stepped) one.paths = uPlot.paths.stepped({align: 1});
    return one;
  }

  // Where a line has no value of its own under the cursor: its last one before.
  function lastValue(plot, number, index) {
    const values = plot.data[number];
    while (index > 0 && values[index] === undefined) --index;
    return index;
  }

  function draw(element, data, joined) {
    element.replaceChildren();
    const lines = data.lines.map(series);
    if (data.limit !== undefined && joined.length > lines.length + 1) {
      lines.push({label: data.limitName, stroke: color('--limit'), width: 1.5, dash: [5, 4], spanGaps: true, points: {show: false},
                  value: () => shortNumber(data.limit)});
    }
    const narrow = element.clientWidth < 560;
    const options = {
      width: element.clientWidth, height: narrow ? 240 : 320, padding: [12, 28, 0, 0],
      scales: {x: scaleOf(data.xScale), y: scaleOf(data.yScale)},
      axes: [axis(data.xLabel, 34), axis(data.yLabel, 52)],
      series: [{label: data.xLabel, value: (plot, value) => shortNumber(value)}, ...lines],
      legend: {show: true, live: true}, cursor: {drag: {x: true, y: false}, points: {size: 7}, dataIdx: lastValue},
    };
    return new uPlot(options, joined, element);
  }

  for (const element of document.querySelectorAll('.chart')) {
    const data = JSON.parse(element.querySelector('script').textContent);
    if (!data.lines.some((line) => line.x.length)) {
      element.textContent = 'Nothing to draw.';
      continue;
    }
    const joined = table(data);
    let width = 0;
    const redraw = () => {
      width = element.clientWidth;
      if (width) draw(element, data, joined);
    };
    new ResizeObserver(() => { if (element.clientWidth !== width) redraw(); }).observe(element);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  }
})();
