// @ts-check
// Light or dark, before the first paint, so that the page never flashes in the other one. A classic script, for the same reason.
//
// In: the choice in local storage, or none. Out: `data-theme` of the root, and an event when it changes.
(() => {
  const KEY = 'tenure-theme';
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');
  /** @returns {string | null} */
  const chosen = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // Storage may be switched off.
    }
  };
  const apply = () => {
    root.dataset.theme = chosen() ?? (system.matches ? 'dark' : 'light');
    dispatchEvent(new Event('theme'));
  };
  apply();
  system.addEventListener('change', apply);
  addEventListener('toggle-theme', () => {
    const next = root.dataset.theme === 'dark' ? 'light' : 'dark';
    try {
      // Who goes back to what the system says follows the system again.
      if ((next === 'dark') === system.matches) localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, next);
    } catch {
      root.dataset.theme = next;
      dispatchEvent(new Event('theme'));
      return;
    }
    apply();
  });
})();
