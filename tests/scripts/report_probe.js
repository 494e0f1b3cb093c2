// Uses a page of runs as a reader does: what is wrong is an error in the console. report_test.sh appends it to the page.
(async function () {
  'use strict';
  const expect = (good, what) => { if (!good) console.error(what); };
  // Virtual time does not wait for real frames.
  globalThis.requestAnimationFrame = (draw) => setTimeout(draw, 16);
  const frame = () => new Promise((done) => setTimeout(done, 50));
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  await frame();
  expect(document.documentElement.scrollWidth <= innerWidth, 'the page is wider than the window');
  for (const element of all('main *')) {
    if (element.getClientRects().length && element.textContent.trim() && !element.closest('svg'))
      expect(parseFloat(getComputedStyle(element).fontSize) >= 11, 'small letters: ' + element.textContent.slice(0, 40));
  }
  for (const row of all('.u-legend tr:not(.smoothed)')) {
    const [name, value] = ['.u-label', '.u-value'].map((part) => row.querySelector(part).getBoundingClientRect());
    expect(value.top < name.bottom, 'a value of a legend stands below its name: ' + row.textContent);
  }

  // What is smoothed is drawn; the legend keeps the values.
  const tools = document.querySelector('.tools'), chart = tools.nextElementSibling, slider = tools.querySelector('[type=range]');
  const legend = () => all('.u-legend tr:not(.smoothed) .u-value', chart).map((value) => value.textContent).join();
  if (!sessionStorage.probed) {
    sessionStorage.probed = slider.value = 0.9;
    slider.dispatchEvent(new Event('input'));
    return location.reload();
  }
  expect(slider.value === '0.9', 'the smoothing is forgotten when the page loads itself again');
  slider.value = 0;
  slider.dispatchEvent(new Event('input'));
  await frame();
  const before = legend(), plain = chart.querySelector('canvas').toDataURL();
  slider.value = 0.9;
  slider.dispatchEvent(new Event('input'));
  await frame();
  expect(legend() === before, `smoothing makes ${before} ${legend()}`);
  expect(chart.querySelector('canvas').toDataURL() !== plain, 'smoothing draws nothing');
  slider.value = 0;
  slider.dispatchEvent(new Event('input'));
  await frame();

  // Halfway between two dots of one run's later starts nothing is drawn in their colour.
  if (all('.u-label', chart).some((label) => label.textContent === 'a new start')) {
    const canvas = chart.querySelector('canvas'), over = chart.querySelector('.u-over'), scale = canvas.width / canvas.clientWidth;
    const x = (over.offsetLeft + 0.7 * over.offsetWidth) * scale;
    const hue = getComputedStyle(document.documentElement).getPropertyValue('--c3');
    const wanted = [1, 3, 5].map((at) => parseInt(hue.trim().slice(at, at + 2), 16));
    const {data} = canvas.getContext('2d').getImageData(x - 2, 0, 5, canvas.height);
    for (let i = 0; i < data.length; i += 4)
      if (wanted.every((value, at) => Math.abs(data[i + at] - value) < 3)) return console.error('a line joins the dots of starts');
  }

  const canvas = document.querySelector('.timeline canvas'), tip = canvas.parentElement.querySelector('.tip');
  const box = canvas.getBoundingClientRect(), whole = canvas.toDataURL();
  let said = '';
  for (let x = 100; x < box.width && !/micro-batch/.test(said); x += 3) {
    canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + x, clientY: box.top + 30, pointerId: 1}));
    said = tip.style.display === 'block' ? tip.textContent : '';
  }
  expect(/^[a-z, ]+, micro-batch [0-9]+, [0-9.]+ (ns|µs|ms|s)\n/.test(said), 'the tip says: ' + said);
  const luminance = (color) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => sum + share * (color[i] / 255) ** 2.2, 0);
  const rgb = (style) => [1, 3, 5].map((at) => parseInt(style.slice(at, at + 2), 16)), rects = [];
  const {fillRect, fillText} = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillRect = function (x, y, width, height) {
    rects.push({x, y, right: x + width, bottom: y + height, style: this.fillStyle});
    fillRect.call(this, x, y, width, height);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...most) {
    if (this.canvas === canvas && this.textAlign === 'center' && y > 22) {  // below the axis, on a span
      const span = rects.findLast((rect) => rect.x <= x && x <= rect.right && rect.y <= y && y <= rect.bottom);
      const [dark, light] = [this.fillStyle, span.style].map((style) => luminance(rgb(style))).sort((a, b) => a - b);
      expect((light + 0.05) / (dark + 0.05) >= 4.4, `the number ${text} is hard to read in ${this.fillStyle}`);
    }
    fillText.call(this, text, x, y, ...most);
  };
  for (const key of '++++++') {  // until spans have numbers
    canvas.dispatchEvent(new KeyboardEvent('keydown', {key}));
    await frame();
  }
  for (const [key, changes] of [['+', true], ['Home', false]]) {
    canvas.dispatchEvent(new KeyboardEvent('keydown', {key}));
    await frame();
    expect((canvas.toDataURL() !== whole) === changes, `the key ${key} does not do what it does`);
  }
  document.body.dataset.probed = '';
})();
