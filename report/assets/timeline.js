// Draws every .timeline of the page: rows of spans on a canvas, to be zoomed by wheel, drag, pinch and keys. The data are what
// timeline_data.h says.
(function () {
  'use strict';

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  // Black or white, whichever has more contrast (4.5 and above) with a colour such as "#9cc0f5": by its relative luminance.
  function inkOn(fill) {
    const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(fill.slice(at, at + 2), 16) / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? '#000000' : '#ffffff';
  }

  function duration(ns, digits = 4) {
    const [unit, name] = ns >= 1e9 ? [1e9, 's'] : ns >= 1e6 ? [1e6, 'ms'] : ns >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
    return Number((ns / unit).toPrecision(digits)) + ' ' + name;
  }

  // 1, 2 or 5 times a power of ten, of which at most `most` fit into `span`.
  function roundStep(span, most) {
    const raw = span / most, power = Math.pow(10, Math.floor(Math.log10(raw)));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  }

  // The first index whose value is above `value`.
  function upperBound(values, value) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] <= value) low = middle + 1; else high = middle;
    }
    return low;
  }

  function make(tag, parent, properties) {
    return parent.appendChild(Object.assign(document.createElement(tag), properties));
  }

  class Timeline {
    constructor(element) {
      this.data = JSON.parse(element.querySelector('script').textContent);
      this.end = Math.max(this.data.end, 1);
      this.from = 0;
      this.to = this.end;
      this.pointers = new Map();
      element.replaceChildren();
      this.addTools(element);
      this.canvas = make('canvas', element, {tabIndex: 0});
      this.canvas.setAttribute('role', 'img');
      this.canvas.setAttribute('aria-label', this.data.title);
      this.tip = make('div', element, {className: 'tip'});
      this.element = element;
      this.setHeights();
      this.listen();
      this.draw();
      // In a frame of its own: a resize within the observer's call would be reported as a loop.
      new ResizeObserver(() => requestAnimationFrame(() => { if (element.clientWidth !== this.width) this.draw(); })).observe(element);
      matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
    }

    addTools(element) {
      const legend = make('ul', element, {className: 'legend'});
      for (const [name, hue] of this.data.kinds) {
        const item = make('li', legend, {});
        make('i', item, {}).style.background = `var(--c${hue})`;
        item.append(name);
      }
      const tools = make('div', element, {className: 'tools'});
      const middle = () => (this.from + this.to) / 2;
      make('button', tools, {type: 'button', textContent: '+', title: 'zoom in', onclick: () => this.zoom(0.5, middle())});
      make('button', tools, {type: 'button', textContent: '−', title: 'zoom out', onclick: () => this.zoom(2, middle())});
      make('button', tools, {type: 'button', textContent: 'whole', title: 'all of it', onclick: () => this.show(0, this.end)});
      const hint = 'Ctrl + wheel or pinch zooms (after a click the wheel alone, or keys + and −), dragging or ← → moves, ' +
        'a double click or Home shows all.';
      make('span', tools, {textContent: hint});
    }

    setHeights() {
      const few = this.data.rows.length <= 16;
      this.upper = few ? 24 : 13;
      this.lower = this.data.rows.some((row) => row.lanes[1].start.length) ? (few ? 9 : 5) : 0;
      this.pitch = this.upper + (this.lower ? this.lower + 2 : 0) + (few ? 9 : 4);
      this.top = 22;
      this.height = this.top + this.pitch * this.data.rows.length;
      this.canvas.style.height = this.height + 'px';
    }

    x(time) { return this.left + (time - this.from) / (this.to - this.from) * (this.width - this.left); }
    time(x) { return this.from + (x - this.left) / (this.width - this.left) * (this.to - this.from); }

    show(from, to) {
      const span = clamp(to - from, Math.min(200, this.end), this.end);
      this.from = clamp(from, 0, this.end - span);
      this.to = this.from + span;
      this.tip.style.display = 'none';
      requestAnimationFrame(() => this.draw());
    }
    zoom(factor, around) { this.show(around - (around - this.from) * factor, around + (this.to - around) * factor); }

    draw() {
      const scale = window.devicePixelRatio || 1;
      this.width = this.element.clientWidth;
      if (!this.width) return;
      const g = this.canvas.getContext('2d');
      this.canvas.width = Math.round(this.width * scale);
      this.canvas.height = Math.round(this.height * scale);
      g.scale(scale, scale);
      g.font = '12px ' + getComputedStyle(document.body).fontFamily;
      const widest = Math.max(...this.data.rows.map((row) => g.measureText(row.name).width));
      this.left = Math.min(widest, this.width / 4) + 10;
      this.colors = this.data.kinds.map(([, hue]) => color('--c' + hue));
      this.drawAxis(g);
      this.data.rows.forEach((row, number) => {
        const top = this.top + this.pitch * number;
        g.fillStyle = color('--soft');
        g.textAlign = 'right';
        g.textBaseline = 'middle';
        g.fillText(row.name, this.left - 8, top + this.upper / 2, this.left - 8);
        this.drawLane(g, row.lanes[0], top, this.upper, true);
        if (this.lower) this.drawLane(g, row.lanes[1], top + this.upper + 2, this.lower, false);
      });
    }

    drawAxis(g) {
      const step = roundStep(this.to - this.from, this.width < 600 ? 6 : 10);
      g.textBaseline = 'alphabetic';
      for (let n = Math.ceil(this.from / step); n * step <= this.to; ++n) {
        const x = this.x(n * step);
        g.fillStyle = color('--line');
        g.fillRect(x, this.top - 6, 1, this.height);
        g.fillStyle = color('--soft');
        const text = n === 0 ? '0' : duration(n * step), half = g.measureText(text).width / 2;
        g.textAlign = x + half > this.width ? 'right' : x - half < this.left ? 'left' : 'center';
        g.fillText(text, clamp(x, this.left, this.width), this.top - 9);
      }
    }

    // Spans narrower than half a pixel are drawn where none of their colour is yet.
    drawLane(g, lane, top, height, numbered) {
      g.fillStyle = color('--lane');
      g.fillRect(this.left, top, this.width - this.left, height);
      g.save();
      g.beginPath();
      g.rect(this.left, top, this.width - this.left, height);
      g.clip();
      g.textAlign = 'center';
      g.textBaseline = 'middle';
      const {start, length, kind, number} = lane;
      const covered = new Map();
      for (let i = Math.max(0, upperBound(start, this.from) - 1); i < start.length && start[i] <= this.to; ++i) {
        const x = this.x(start[i]), right = this.x(start[i] + length[i]), width = Math.max(right - x, 0.6);
        if (right - x < 0.5) {
          if ((covered.get(kind[i]) ?? -1) >= right) continue;
          covered.set(kind[i], x + width);
        }
        g.fillStyle = this.colors[kind[i]];
        g.fillRect(x, top, width > 3 ? width - 0.6 : width, height);
      }
      if (numbered && height > 12) this.drawNumbers(g, lane, top, height);
      g.restore();
    }

    // Once for neighbours with one number and kind.
    drawNumbers(g, {start, length, kind, number}, top, height) {
      let i = Math.max(0, upperBound(start, this.from) - 1);
      while (i < start.length && start[i] <= this.to) {
        let last = i;
        while (last + 1 < start.length && number[last + 1] === number[i] && kind[last + 1] === kind[i]) ++last;
        const x = Math.max(this.x(start[i]), this.left), right = Math.min(this.x(start[last] + length[last]), this.width);
        const text = String(number[i]);
        if (number[i] >= 0 && right - x > 6 + 7 * text.length) {
          g.fillStyle = inkOn(this.colors[kind[i]]);
          g.fillText(text, (x + right) / 2, top + height / 2 + 1);
        }
        i = last + 1;
      }
    }

    // [row, lane, index] of the span at a place of the canvas.
    at(x, y) {
      const number = Math.floor((y - this.top) / this.pitch), row = this.data.rows[number];
      if (!row || x < this.left) return null;
      const inside = y - this.top - this.pitch * number, which = inside < this.upper + 1 || !this.lower ? 0 : 1;
      const lane = row.lanes[which], slack = (this.to - this.from) / this.width;
      const i = upperBound(lane.start, this.time(x) + slack) - 1;
      return i >= 0 && lane.start[i] + lane.length[i] + slack >= this.time(x) ? [row, lane, i] : null;
    }

    showTip(event) {
      const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
      const found = this.at(x, y);
      this.tip.style.display = found ? 'block' : 'none';
      if (!found) return;
      const [row, lane, i] = found, number = lane.number[i];
      const kind = this.data.kinds[lane.kind[i]][0], batch = number >= 0 ? `, micro-batch ${number}` : '';
      this.tip.textContent = `${kind}${batch}, ${duration(lane.length[i])}\n${row.name}: ${this.data.what[lane.what[i]]}, from ` +
        `${duration(lane.start[i], 7)} to ${duration(lane.start[i] + lane.length[i], 7)}`;
      this.tip.style.left = clamp(x + 14, 0, Math.max(0, this.width - this.tip.offsetWidth)) + 'px';
      this.tip.style.top = this.canvas.offsetTop + y + 18 + 'px';
    }

    listen() {
      const canvas = this.canvas;
      const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
      canvas.addEventListener('wheel', (event) => {
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
        event.preventDefault();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return this.move(event.deltaX);
        this.zoom(Math.exp(clamp(event.deltaY, -200, 200) / 300), this.time(place(event)));
      }, {passive: false});
      canvas.addEventListener('dblclick', () => this.show(0, this.end));
      canvas.addEventListener('pointerdown', (event) => {
        canvas.setPointerCapture(event.pointerId);
        this.pointers.set(event.pointerId, place(event));
        if (event.pointerType !== 'mouse') this.showTip(event);
      });
      canvas.addEventListener('pointermove', (event) => this.pointerMoves(event, place(event)));
      for (const name of ['pointerup', 'pointercancel', 'pointerleave']) {
        canvas.addEventListener(name, (event) => {
          this.pointers.delete(event.pointerId);
          if (event.pointerType === 'mouse' && name === 'pointerleave') this.tip.style.display = 'none';
        });
      }
      canvas.addEventListener('blur', () => { this.tip.style.display = 'none'; });
      canvas.addEventListener('keydown', (event) => {
        const middle = (this.from + this.to) / 2, step = (this.width - this.left) / 8;
        const action = {
          '+': () => this.zoom(0.7, middle), '=': () => this.zoom(0.7, middle), '-': () => this.zoom(1 / 0.7, middle),
          ArrowLeft: () => this.move(-step), ArrowRight: () => this.move(step), Home: () => this.show(0, this.end),
        }[event.key];
        if (!action || event.ctrlKey || event.metaKey) return;
        event.preventDefault();
        action();
      });
    }

    move(pixels) {
      const by = pixels * (this.to - this.from) / (this.width - this.left);
      this.show(this.from + by, this.to + by);
    }

    // One pointer moves, two pinch.
    pointerMoves(event, x) {
      const before = this.pointers.get(event.pointerId);
      if (before === undefined) return this.showTip(event);
      if (this.pointers.size === 1) {
        this.pointers.set(event.pointerId, x);
        if (x !== before) this.move(before - x);
        return;
      }
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      this.pointers.set(event.pointerId, x);
      const was = Math.abs(before - other), is = Math.abs(x - other);
      if (was > 8 && is > 8) this.zoom(was / is, this.time((x + other) / 2));
    }
  }

  for (const element of document.querySelectorAll('.timeline')) {
    try {
      new Timeline(element);
    } catch (error) {  // a file that says something else
      element.textContent = 'This step cannot be drawn: ' + error.message;
    }
  }
})();
