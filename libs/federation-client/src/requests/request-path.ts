/** Query parameters; `undefined` leaves one out, a list repeats it. */
export type RequestQuery = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

/** A path with its values percent-encoded: ``federationPath`/_matrix/federation/v1/event/${eventId}` ``. */
export function federationPath(parts: TemplateStringsArray, ...values: readonly string[]): string {
  return parts.reduce((path, part, i) => `${path}${encodeURIComponent(values[i - 1] ?? '')}${part}`);
}

/** Path and query as they are sent and signed. */
export function requestUri(path: string, query: RequestQuery = {}): string {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? (value as readonly string[]) : [value])
      .filter((one) => one !== undefined)
      .map((one) => `${encodeURIComponent(name)}=${encodeURIComponent(String(one))}`),
  );
  return pairs.length === 0 ? path : `${path}?${pairs.join('&')}`;
}
