// Draws every .chart of the page with uPlot. The data are what report_page.cpp writes of a LinePlot.
(function () {
  'use strict';

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function shortNumber(value, onAxis) {
    if (value == null || !isFinite(value)) return '–';
    const size = Math.abs(value);
    if (size >= 1e15 || (size > 0 && size < 1e-4)) return Number(value.toPrecision(4)).toExponential();
    for (const [from, suffix] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M']]) {
      if (size >= from) return Number((value / from).toPrecision(4)) + suffix;
    }
    if (onAxis && size >= 1e4) return Number((value / 1e3).toPrecision(4)) + 'k';  // five digits would reach into the axis's label
    return size >= 1e3 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(4)));
  }

  // The exponential mean, which weighs a value `share` as much as the next one; the first values weigh no more than others.
  function smooth(values, share) {
    let sum = 0, weight = 0;
    return values.map((value) => {
      if (value == null || !share) return value;
      sum = share * sum + value, weight = share * weight + 1;
      return sum / weight;
    });
  }

  // Lines have places of their own on the x axis; uPlot wants one axis for all.
  function table(data, drawn, choice) {
    const xOf = (line) => (choice.other ? line.otherX : line.x);
    const sets = drawn.map((line) => {
      const placed = xOf(line).map((x, i) => [x, i]).filter(([x]) => x != null);  // tokens of a step that has no line yet
      return [placed.map(([x]) => x), placed.map(([, i]) => line.y[i])];
    });
    if (data.limit !== undefined) {
      const all = data.lines.flatMap(xOf).filter((x) => x != null);
      const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
      if (all.length) sets.push([low === high ? [low] : [low, high], low === high ? [data.limit] : [data.limit, data.limit]]);
    }
    return sets.length === 1 ? sets[0] : uPlot.join(sets, sets.map(() => [2, 2]));  // gaps reach to the next value
  }

  function scaleOf(kind) {
    return kind === 'linear' ? {time: false} : {time: false, distr: 3, log: kind === 'log2' ? 2 : 10};
  }

  function axis(label, size) {
    return {
      ...(label === 'step' && {filter: (plot, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick : null))}),
      label, labelSize: 20, labelFont: '12px system-ui, sans-serif', font: '12px system-ui, sans-serif', stroke: color('--soft'), size,
      grid: {stroke: color('--line'), width: 1}, ticks: {stroke: color('--line'), width: 1},
      values: (plot, ticks) => ticks.map((tick) => (tick == null ? '' : shortNumber(tick, true))),
    };
  }

  function series(line) {
    const one = {
      label: line.name, stroke: color('--c' + line.hue), width: 2, spanGaps: false, dash: line.dashed ? [6, 4] : undefined,
      points: {show: line.marked || line.x.length === 1, size: 7, fill: color('--c' + line.hue)},
      alpha: line.pale ? 0.3 : 1, class: line.of ? 'smoothed' : undefined,
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

  function draw(element, data, choice) {
    // The smoothed line lies over the pale one, which the legend reads.
    const drawn = !choice.smoothing ? data.lines : data.lines.map((line) => ({...line, pale: true})).concat(
      data.lines.map((line, i) => ({...line, y: smooth(line.y, choice.smoothing), marked: false, of: i + 1})));
    const joined = table(data, drawn, choice), xLabel = choice.other ? data.otherXLabel : data.xLabel;
    const height = element.clientHeight;
    element.style.minHeight = height + 'px';  // the page does not jump while the chart is made anew
    if (choice.plot) choice.plot.destroy();
    element.replaceChildren();
    const lines = drawn.map(series);
    if (data.limit !== undefined && joined.length > lines.length + 1) {
      lines.push({label: data.limitName, stroke: color('--limit'), width: 1.5, dash: [5, 4], spanGaps: true, points: {show: false},
                  value: () => shortNumber(data.limit)});
    }
    const narrow = element.clientWidth < 560;
    const options = {
      width: element.clientWidth, height: narrow ? 240 : 320, padding: [12, 28, 0, 0],
      scales: {x: scaleOf(data.xScale), y: scaleOf(choice.log ? 'log10' : data.yScale)},
      axes: [axis(xLabel, 34), axis(data.yLabel, 52)],
      series: [{label: xLabel, value: (plot, x) => (x != null && x < 1e9 ? x.toLocaleString('en-US') : shortNumber(x))}, ...lines],
      hooks: {
        setCursor: [(plot) => { if (plot.cursor.idx == null) showLast(plot); }],
        setSeries: [(plot, number, {show}) => drawn.forEach((line, i) => {
          if (show != null && number && line.of === number) plot.setSeries(i + 1, {show});
        })],
      },
      legend: {show: true, live: true, markers: {
        dash: (plot, number) => (lines[number - 1].dash ? 'dashed' : 'solid'),
        fill: (plot, number) => (lines[number - 1].dash ? null : lines[number - 1].stroke),
      }},
      cursor: {drag: {x: true, y: false}, points: {size: 7}, dataIdx: lastValue},
    };
    choice.plot = new uPlot(options, joined, element);
    showLast(choice.plot);
    element.style.minHeight = '';
  }

  // Where nothing is hovered, the legend has the last value of each line.
  function showLast(plot) {
    const last = plot.data[0].length - 1;
    plot.setLegend({idxs: plot.data.map((values, number) => (number ? lastValue(plot, number, last) : last))}, false);
  }

  // Choices outlive the reload of a page that is written again.
  const kept = (() => { try { return sessionStorage; } catch { return {}; } })();

  // What a reader may choose: smoothing, a logarithmic axis, and another x axis where there is one.
  function addTools(element, data, choice, redraw) {
    const tools = document.createElement('div');
    tools.className = 'tools';
    const add = (text, tag, properties, onchange) => {
      const label = document.createElement('label'), input = Object.assign(document.createElement(tag), properties);
      label.append(text, input);
      const key = `${location.pathname} ${element.dataset.number} ${text}`;
      const property = properties.type === 'checkbox' ? 'checked' : 'value';
      if (kept[key]) input[property] = JSON.parse(kept[key]), onchange(input);
      input.addEventListener('input', () => {
        onchange(input);
        kept[key] = JSON.stringify(input[property]);
        redraw();
      });
      tools.append(label);
    };
    add('smoothing ', 'input', {type: 'range', min: 0, max: 0.99, step: 0.01, value: 0}, (it) => { choice.smoothing = Number(it.value); });
    if (data.lines.every((line) => line.y.every((y) => y == null || y > 0)))
      add('logarithmic ', 'input', {type: 'checkbox'}, (it) => { choice.log = it.checked; });
    add(`${data.otherXLabel} as x `, 'input', {type: 'checkbox'}, (it) => { choice.other = it.checked; });
    element.before(tools);
  }

  for (const [number, element] of document.querySelectorAll('.chart').entries()) {
    element.dataset.number = number;
    const data = JSON.parse(element.querySelector('script').textContent);
    if (!data.lines.some((line) => line.x.length)) {
      element.textContent = 'Nothing to draw.';
      continue;
    }
    const choice = {smoothing: 0, log: false, other: false};
    let width = 0;
    const redraw = () => {
      width = element.clientWidth;
      if (width) draw(element, data, choice);
    };
    if (data.otherXLabel) addTools(element, data, choice, redraw);
    redraw();
    // In a frame of its own: a resize within the observer's call would be reported as a loop.
    new ResizeObserver(() => requestAnimationFrame(() => { if (element.clientWidth !== width) redraw(); })).observe(element);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  }
})();
