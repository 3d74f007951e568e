"use strict";
const formatBytes = (bytes) => {
  for (const [unit, factor, digits] of [["GiB", 2 ** 30, 2], ["MiB", 2 ** 20, 1], ["KiB", 2 ** 10, 1]]) {
    if (bytes >= factor) return `${(bytes / factor).toFixed(digits)} ${unit}`;
  }
  return `${bytes} B`;
};
