/** Whether a name matches one of several globs of `*` and `?`; case does not matter. Linear in the length of the name. */
export function globMatcher(globs: readonly string[]): (name: string) => boolean {
  const patterns = globs.map((glob) => glob.toLowerCase());
  return (name) => {
    const lower = name.toLowerCase();
    return patterns.some((pattern) => matches(pattern, lower));
  };
}

/** Goes back to the last `*` only, which is enough: an earlier one could not match more. */
function matches(pattern: string, text: string): boolean {
  let at = 0;
  let star = -1;
  let resume = 0;
  for (let i = 0; i < text.length;) {
    const unit = pattern[at];
    if (unit === '*') {
      star = at++;
      resume = i;
    } else if (unit === '?' || unit === text[i]) {
      at++;
      i++;
    } else if (star >= 0) {
      at = star + 1;
      i = ++resume;
    } else return false;
  }
  while (pattern[at] === '*') at++;
  return at === pattern.length;
}
