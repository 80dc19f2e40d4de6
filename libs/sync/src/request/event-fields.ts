import { splitPath } from '@rookery/push-rules';

type Picker = (event: Readonly<Record<string, unknown>>) => Record<string, unknown>;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Compiles `event_fields` of a filter into a function that keeps only these fields of an event.
 * @spec client-server-api#filtering
 */
export function compileEventFields(fields: readonly string[] | undefined): Picker | undefined {
  if (fields === undefined) return undefined;
  const paths = fields.map(splitPath);
  return (event) => {
    const result: Record<string, unknown> = {};
    const made = new Set<unknown>([result]);
    for (const path of paths) {
      let from: unknown = event;
      for (const name of path) from = isObject(from) && Object.hasOwn(from, name) ? from[name] : undefined;
      if (from === undefined) continue;
      let to = result;
      for (const name of path.slice(0, -1)) {
        const next = Object.hasOwn(to, name) ? to[name] : undefined;
        to = isObject(next) ? next : put(to, name, {});
        made.add(next === undefined ? to : undefined);
      }
      // An object that was taken as a whole holds the field already, and is the event's own.
      if (made.has(to)) put(to, path.at(-1) ?? '', from);
    }
    return result;
  };
}

/** Sets an own property under any name, `__proto__` included. */
function put<T>(target: Record<string, unknown>, name: string, value: T): T {
  Object.defineProperty(target, name, { value, enumerable: true, configurable: true, writable: true });
  return value;
}
