/** Splits a dotted path: `\.` is a dot and `\\` a backslash inside a name. @spec client-server-api#conditions-1 */
export function splitPath(path: string): string[] {
  const names: string[] = [];
  let name = '';
  for (let i = 0; i < path.length; i++) {
    const char = path[i];
    if (char === '\\' && (path[i + 1] === '.' || path[i + 1] === '\\')) {
      name += path[i + 1];
      i += 1;
    } else if (char === '.') {
      names.push(name);
      name = '';
    } else {
      name += char;
    }
  }
  names.push(name);
  return names;
}

/** The value at a path of an event, looked up through own keys of objects only; `undefined` when there is none. */
export function propertyAt(event: unknown, names: readonly string[]): unknown {
  let value: unknown = event;
  for (const name of names) {
    if (typeof value !== 'object' || value === null || Array.isArray(value) || !Object.hasOwn(value, name))
      return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}
