// Shows the operation under the pointer, or under the arrow keys. The page is whole without it.
(() => {
  const step = JSON.parse(document.getElementById("step-data").textContent);
  const cursor = document.getElementById("cursor");
  const tip = document.getElementById("tip");
  const numColumns = step.shown.length;
  let column = step.peak;

  const element = (tag, ...children) => {
    const made = document.createElement(tag);
    made.append(...children);
    return made;
  };

  const row = (name, bytes, colour) => {
    const label = element("span", name);
    if (colour) {
      const swatch = element("i");
      swatch.className = "swatch";
      swatch.style.background = colour;
      label.prepend(swatch);
    }
    return element("div", label, formatBytes(bytes));
  };

  const describe = () => {
    const kinds = step.kinds.map((kind) => ({ ...kind, bytes: kind.bytes[column] })).filter((kind) => kind.bytes);
    const total = kinds.reduce((sum, kind) => sum + kind.bytes, 0);
    const place = [step.layers[step.layer[column]], step.phases[column]].filter(Boolean).join(", ");
    const number = `operation ${(step.shown[column] + 1).toLocaleString("en")} of ${step.length.toLocaleString("en")}`;
    const name = element("p", element("b", step.names[column]), element("br"), place || "no layer", element("br"), number);
    tip.replaceChildren(name, row("in use", total), ...kinds.map((kind) => row(kind.kind, kind.bytes, kind.colour)));
  };

  const show = (plot) => {
    const { left, right, bottom, top } = plot.dataset;
    const width = plot.clientWidth;
    const height = plot.clientHeight;
    const across = width * (+left + (right - left) * (column + 0.5) / numColumns);
    describe();
    cursor.hidden = tip.hidden = false;
    Object.assign(cursor.style, {
      left: `${across}px`, top: `${height * (1 - top)}px`, height: `${height * (top - bottom)}px`,
    });
    // Beside the cursor, on the side with more room.
    const before = across > width / 2;
    Object.assign(tip.style, { left: before ? "" : `${across + 14}px`, right: before ? `${width - across + 14}px` : "" });
  };

  const hide = () => { cursor.hidden = tip.hidden = true; };

  for (const plot of document.querySelectorAll(".plot")) {
    const { left, right } = plot.dataset;
    const follow = (event) => {
      const box = plot.getBoundingClientRect();
      const across = ((event.clientX - box.left) / box.width - left) / (right - left);
      column = Math.min(Math.max(Math.floor(across * numColumns), 0), numColumns - 1);
      show(plot);
    };
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    // A finger that is lifted has been read under, not moved away.
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      column = Math.min(Math.max(column + by * (event.shiftKey ? 10 : 1), 0), numColumns - 1);
      show(plot);
    });
  }
  document.getElementById("hint").textContent = "Point at the figure, or use the arrow keys, to see each operation.";
})();
