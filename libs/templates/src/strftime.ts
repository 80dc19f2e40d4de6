/**
 * Formats a time by the directives templates use (`%d-%m-%Y`, `%H:%M`…), in English. Unknown directives stay as they are.
 * @param ms since the epoch
 * @param timeZone IANA name; the process's own when absent
 */
export function strftime(ms: number, format: string, timeZone?: string): string {
  const parts: Record<string, string> = {};
  const options = {
    ...(timeZone === undefined ? {} : { timeZone }),
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hourCycle: 'h23',
  } as const;
  for (const { type, value } of new Intl.DateTimeFormat('en-GB', options).formatToParts(ms)) parts[type] = value;
  const word = (field: Intl.DateTimeFormatOptions, wanted: string): string =>
    new Intl.DateTimeFormat('en-US', { ...(timeZone === undefined ? {} : { timeZone }), ...field })
      .formatToParts(ms)
      .find(({ type }) => type === wanted)?.value ?? '';
  const { year = '', month = '', day = '', hour = '', minute = '', second = '' } = parts;
  const hour12 = String(Number(hour) % 12 || 12).padStart(2, '0');
  const values: Record<string, () => string> = {
    Y: () => year,
    y: () => year.slice(-2),
    m: () => month,
    d: () => day,
    e: () => String(Number(day)).padStart(2, ' '),
    H: () => hour,
    I: () => hour12,
    M: () => minute,
    S: () => second,
    p: () => (Number(hour) < 12 ? 'AM' : 'PM'),
    B: () => word({ month: 'long' }, 'month'),
    b: () => word({ month: 'short' }, 'month'),
    A: () => word({ weekday: 'long' }, 'weekday'),
    a: () => word({ weekday: 'short' }, 'weekday'),
    Z: () => word({ timeZoneName: 'short' }, 'timeZoneName'),
    F: () => `${year}-${month}-${day}`,
    T: () => `${hour}:${minute}:${second}`,
    x: () => `${month}/${day}/${year.slice(-2)}`,
    X: () => `${hour}:${minute}:${second}`,
    c: () =>
      `${word({ weekday: 'short' }, 'weekday')} ${word({ month: 'short' }, 'month')} ${day} ${hour}:${minute}:${second} ${year}`,
    '%': () => '%',
  };
  return format.replace(/%-?([A-Za-z%])/g, (whole, directive: string) => {
    const value = values[directive]?.();
    if (value === undefined) return whole;
    return whole.startsWith('%-') ? value.replace(/^0(?=.)/, '') : value;
  });
}
