// Draws the charts of a page. The page is whole without it: every chart has its figures as a table.
(() => {
  const specs = JSON.parse(document.getElementById("chart-data").textContent);
  const token = (name) => name.startsWith("--")
    ? getComputedStyle(document.documentElement).getPropertyValue(name).trim()
    : name;
  const largest = (values) => values.reduce((most, value) => Math.max(most, value ?? 0), 0);
  // Axes count in the unit that suits them, so that their steps are round.
  const suited = (most, units) => units.find(([factor]) => most >= factor) ?? units.at(-1);
  const SIZES = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "bytes"]];
  const TIMES = [[7200, "hours", 3600], [120, "minutes", 60], [0, "seconds", 1]];
  const FAR_LIMIT = 2.5;

  const written = (value, unit) => {
    if (value === null) return "-";
    if (unit === "bytes") return formatBytes(value);
    if (unit === "share") return `${(100 * value).toFixed(1)} %`;
    if (unit === "rate") return `${Number(value < 100 ? value.toPrecision(3) : Math.round(value)).toLocaleString("en")} / s`;
    return Number(value.toPrecision(4)).toString();
  };

  const layout = (spec) => {
    const totals = spec.stacked
      ? spec.at.map((_, place) => spec.series.reduce((sum, one) => sum + (one.values[place] ?? 0), 0))
      : spec.series.flatMap((one) => one.values);
    const most = largest(totals);
    const marks = spec.marks.map((mark) => ({ ...mark, isFar: mark.value > FAR_LIMIT * most }));
    const high = Math.max(most, ...marks.filter((mark) => !mark.isFar).map((mark) => mark.value));
    const [sizeFactor, sizeName] = spec.unit === "bytes" ? suited(high, SIZES) : [spec.unit === "share" ? 0.01 : 1, ""];
    const [, timeName, timeFactor] = suited(spec.at.at(-1) ?? 0, TIMES);
    const furthest = largest([...spec.at, ...spec.moments.map((moment) => moment.at)]);
    const [alongFactor, alongName] = suited(furthest, SIZES);
    const alongs = {
      seconds: { factor: timeFactor, name: `${timeName} of training` },
      bytes: { factor: alongFactor, name: `${alongName} of memory`, max: (1.04 * furthest) / alongFactor },
      step: { factor: 1, name: "% of the step" },
      epoch: { factor: 1, name: "epoch" },
      update: { factor: 1, name: "optimizer steps" },
    };
    return {
      marks,
      high: high / sizeFactor,
      up: { factor: sizeFactor, name: spec.unit === "share" ? "%" : sizeName },
      along: alongs[spec.across],
    };
  };

  // Lines across with their names, moments along, and the phases of a step as a ribbon on top.
  const annotations = (spec, { marks, up, along }) => ({
    id: "annotations",
    beforeDatasetsDraw({ ctx, chartArea, scales }) {
      ctx.save();
      for (const moment of spec.moments) {
        const x = scales.x.getPixelForValue(moment.at / along.factor);
        ctx.strokeStyle = token(moment.colour);
        ctx.globalAlpha = 0.5;
        ctx.setLineDash([2, 3]);
        ctx.beginPath();
        ctx.moveTo(x, chartArea.top);
        ctx.lineTo(x, chartArea.bottom);
        ctx.stroke();
      }
      ctx.restore();
    },
    // Named where there is room for it, at the bottom where curves seldom are.
    nameMoments({ ctx, chartArea, scales }) {
      let free = chartArea.left;
      for (const moment of spec.moments) {
        const at = scales.x.getPixelForValue(moment.at / along.factor);
        const width = ctx.measureText(moment.name).width;
        const x = at + 4 + width > chartArea.right ? at - 4 - width : at + 4;
        if (x < free) continue;
        free = x + width + 8;
        ctx.fillStyle = token(moment.colour);
        ctx.textAlign = "left";
        ctx.textBaseline = "bottom";
        ctx.fillText(moment.name, x, chartArea.bottom - 3);
      }
    },
    afterDatasetsDraw(chart) {
      const { ctx, chartArea, scales } = chart;
      ctx.save();
      ctx.font = `11px ${Chart.defaults.font.family}`;
      this.nameMoments(chart);
      for (const band of spec.bands) {
        const [left, right] = [band.first, band.end].map((at) => scales.x.getPixelForValue(at));
        ctx.fillStyle = token(`--${band.name}`);
        ctx.fillRect(left, chartArea.top - 18, right - left, 14);
        ctx.fillStyle = token("--ink");
        ctx.textAlign = "center";
        ctx.textBaseline = "middle";
        if (ctx.measureText(band.name).width + 8 < right - left) ctx.fillText(band.name, (left + right) / 2, chartArea.top - 11);
      }
      const height = (mark) => mark.isFar ? chartArea.top + 14 : scales.y.getPixelForValue(mark.value / up.factor);
      marks.forEach((mark, place) => {
        const y = height(mark);
        ctx.strokeStyle = token(mark.colour);
        ctx.setLineDash([6, 4]);
        ctx.lineWidth = 1.5;
        if (!mark.isFar) {
          ctx.beginPath();
          ctx.moveTo(chartArea.left, y);
          ctx.lineTo(chartArea.right, y);
          ctx.stroke();
        }
        // Neighbours stand at opposite ends, and one just below another line has its name below.
        const isClose = marks.some((other) => other.value > mark.value && y - height(other) < 20);
        const below = isClose ? 20 : 0;
        const atLeft = place % 2 === 1;
        const text = mark.isFar ? `↑ ${mark.name}` : mark.name;
        const width = ctx.measureText(text).width;
        const x = atLeft ? chartArea.left + 6 : chartArea.right - 6 - width;
        ctx.fillStyle = token("--card");
        ctx.globalAlpha = 0.85;
        ctx.fillRect(x - 3, y - 17 + below, width + 6, 14);
        ctx.globalAlpha = 1;
        ctx.fillStyle = token(mark.colour);
        ctx.textAlign = "left";
        ctx.textBaseline = "bottom";
        ctx.fillText(text, x, y - 4 + below);
      });
      ctx.restore();
    },
  });

  const isDots = (spec) => spec.across === "bytes";
  const dots = (series) => ({
    showLine: false, fill: false, clip: false,
    pointStyle: series.shape, pointRadius: series.is_large ? 9 : 5, pointHoverRadius: series.is_large ? 11 : 7,
    order: series.is_large ? 0 : 1,
  });

  const colours = (series) => ({
    borderColor: token(series.colour),
    backgroundColor: token(series.colour) + (series.shaded ? "30" : ""),
  });

  const dataset = (spec, placed, series) => ({
    label: series.name,
    data: spec.at.map((at, place) => ({
      x: at / placed.along.factor,
      y: series.values[place] === null ? null : series.values[place] / placed.up.factor,
    })),
    ...colours(series),
    borderWidth: spec.stacked ? 0 : 2,
    fill: spec.stacked || (series.shaded ? "origin" : false),
    stepped: spec.stacked,
    pointRadius: spec.across === "epoch" && spec.at.length <= 30 ? 3 : 0,
    pointHoverRadius: spec.stacked ? 0 : 4,
    spanGaps: true,
    clip: spec.across === "epoch" ? false : undefined,
    ...(isDots(spec) ? dots(series) : {}),
  });

  const scales = (spec, placed) => {
    const axis = { border: { display: false }, ticks: { color: token("--muted"), maxRotation: 0 } };
    const title = (text) => ({ display: Boolean(text), text, color: token("--muted"), font: { size: 11 } });
    const isEpochs = spec.across === "epoch";
    return {
      x: {
        ...axis, type: "linear", title: title(placed.along.name), grid: { display: false },
        min: isEpochs && spec.at.length > 1 ? 1 : isEpochs ? 0.5 : 0,
        max: placed.along.max ?? (spec.at.length > 1 ? spec.at.at(-1) / placed.along.factor : undefined),
        ticks: { ...axis.ticks, ...(isEpochs ? { precision: 0 } : {}), maxTicksLimit: 8, includeBounds: spec.across === "step" || isEpochs },
      },
      y: {
        ...axis, stacked: spec.stacked, title: title(placed.up.name), grid: { color: token("--line") },
        beginAtZero: spec.unit !== "share",
        suggestedMax: spec.marks.length ? placed.high * 1.12 : undefined,
        ticks: { ...axis.ticks, maxTicksLimit: 6 },
      },
    };
  };

  const tooltip = (spec) => ({
    backgroundColor: token("--card"),
    borderColor: token("--muted"),
    borderWidth: 1,
    titleColor: token("--ink"),
    bodyColor: token("--ink"),
    footerColor: token("--ink"),
    padding: 10,
    boxPadding: 4,
    usePointStyle: true,
    // The stack is read from the top.
    itemSort: spec.stacked ? (one, other) => other.datasetIndex - one.datasetIndex : undefined,
    filter: (item) => !spec.stacked || spec.series[item.datasetIndex].values[item.dataIndex] > 0,
    callbacks: {
      title: ([item]) => item ? wrapped(spec.labels[item.dataIndex]) : "",
      label: (item) => {
        const series = spec.series[item.datasetIndex];
        return ` ${series.name}  ${written(series.values[item.dataIndex], spec.unit)}`;
      },
      footer: (items) => spec.stacked && items.length
        ? `in use  ${formatBytes(spec.series.reduce((sum, one) => sum + one.values[items[0].dataIndex], 0))}`
        : "",
      afterBody: ([item]) => spec.details[item?.dataIndex] ?? "",
    },
  });

  // A canvas breaks no lines, and layers have long paths.
  const wrapped = (text) => text.match(/.{1,46}(?=[\s/]|$)|.{1,46}/gu) ?? [text];

  const options = (spec, placed) => ({
    animation: false,
    maintainAspectRatio: false,
    interaction: { mode: isDots(spec) ? "nearest" : "index", intersect: false },
    layout: { padding: { top: spec.bands.length ? 20 : 4 } },
    scales: scales(spec, placed),
    plugins: {
      legend: {
        display: !spec.stacked && spec.series.length > 1, align: "start",
        labels: {
          color: token("--ink"), boxWidth: 8, boxHeight: 8, usePointStyle: true,
          ...(isDots(spec) ? {} : { pointStyle: "rectRounded" }),
        },
      },
      tooltip: tooltip(spec),
    },
  });

  const drawn = (canvas) => {
    const spec = specs.find((one) => one.key === canvas.dataset.chart);
    const placed = layout(spec);
    const chart = new Chart(canvas, {
      type: "line",
      data: { datasets: spec.series.map((series) => dataset(spec, placed, series)) },
      options: options(spec, placed),
      plugins: [annotations(spec, placed)],
    });
    let place = -1;
    const point = () => {
      const elements = spec.series
        .map((_, datasetIndex) => ({ datasetIndex, index: place }))
        .filter(({ datasetIndex }) => !isDots(spec) || spec.series[datasetIndex].values[place] !== null);
      chart.setActiveElements(place < 0 ? [] : elements);
      chart.tooltip.setActiveElements(place < 0 ? [] : elements, { x: 0, y: 0 });
      chart.update();
    };
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      place = Math.min(Math.max(place + by * (event.shiftKey ? 10 : 1), 0), spec.at.length - 1);
      point();
    });
    canvas.addEventListener("blur", () => { place = -1; point(); });
    return () => {
      chart.data.datasets.forEach((one, index) => {
        Object.assign(one, colours(spec.series[index]));
      });
      chart.options = options(spec, placed);
      chart.update();
    };
  };

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  const repaints = [...document.querySelectorAll("canvas[data-chart]")].map(drawn);
  const repaint = () => repaints.forEach((one) => one());
  for (const query of ["print", "(prefers-color-scheme: dark)"]) matchMedia(query).addEventListener("change", repaint);
})();
