/**
 * The methods of some services as plain functions, callable without their object: modules get what they may call, and nothing that
 * belongs to it.
 */
export function callsOf<T extends object>(service: T): { readonly [Name in keyof T]: T[Name] } {
  const calls: Record<string, unknown> = {};
  for (const name of Object.getOwnPropertyNames(Object.getPrototypeOf(service))) {
    const method = (service as Record<string, unknown>)[name];
    if (name !== 'constructor' && typeof method === 'function') calls[name] = method.bind(service) as unknown;
  }
  return Object.freeze(calls) as { readonly [Name in keyof T]: T[Name] };
}
