// The texts that a person sees and that stand out too little from what is behind them: WCAG 2.1, 4.5 to 1.
(() => {
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const [red, green, blue, alpha = 1] = channels(getComputedStyle(one).backgroundColor);
      if (alpha === 1) return [red, green, blue];
    }
    return [255, 255, 255];
  };
  const isSeen = (node) => node.getBoundingClientRect().width > 1 && !node.closest("[hidden], .hidden, noscript") &&
    [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
  return [...document.querySelectorAll("body *")].filter(isSeen).flatMap((node) => {
    const [ink, paper] = [light(channels(getComputedStyle(node).color)), light(behind(node))];
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    return contrast < 4.5 ? [`${contrast.toFixed(1)} to 1: ${node.textContent.trim().slice(0, 40)}`] : [];
  });
})()
