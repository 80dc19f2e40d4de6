/** So many values of one object are looked at; what is larger is estimated from these. */
const maxLookedAt = 2_000;

/**
 * About how many bytes of memory a value holds: exact for what it is made of, a guess for how the runtime keeps it. What several
 * values share counts with each of them.
 */
export function roughBytes(value: unknown): number {
  const seen = new Set<object>();
  const waiting: unknown[] = [value];
  let bytes = 0;
  let lookedAt = 0;
  for (; waiting.length > 0 && lookedAt < maxLookedAt; lookedAt++) {
    const one = waiting.pop();
    if (typeof one === 'string') bytes += 16 + one.length;
    else if (typeof one !== 'object' || one === null) bytes += 8;
    else if (!seen.has(one)) {
      seen.add(one);
      bytes += 24;
      if (ArrayBuffer.isView(one)) bytes += one.byteLength;
      else if (Array.isArray(one) || one instanceof Set) for (const each of one) waiting.push(each);
      else if (one instanceof Map) for (const pair of one) waiting.push(...pair);
      else for (const each of Object.values(one)) waiting.push(each);
    }
  }
  return waiting.length === 0 ? bytes : Math.round((bytes * (lookedAt + waiting.length)) / lookedAt);
}
