/**
 * Loads two modules ahead of those that would load them in a costlier way, 15 MiB of memory altogether. To be called before
 * anything else is loaded (ADR 0021).
 */
export async function leanImports(): Promise<void> {
  await httpWithoutWebSocket();
  await loggersWithoutLocales();
}

/**
 * `import … from 'node:http'` looks at all that the module has, and with three of the names the runtime's whole client for
 * the web comes along, which nobody takes from there. They stay where they are for `http.WebSocket`.
 */
async function httpWithoutWebSocket(): Promise<void> {
  const http = process.getBuiltinModule('node:http');
  const hidden = ['WebSocket', 'CloseEvent', 'MessageEvent'].map(
    (name) => [name, Object.getOwnPropertyDescriptor(http, name)] as const,
  );
  for (const [name] of hidden) Reflect.deleteProperty(http, name);
  await import('node:http');
  for (const [name, property] of hidden) if (property !== undefined) Object.defineProperty(http, name, property);
}

/**
 * The framework's own loggers, in whose place ours writes, make their formats of dates when they are loaded; that reads the
 * tables of all languages. Theirs are made when they are first used.
 */
async function loggersWithoutLocales(): Promise<void> {
  const property = Object.getOwnPropertyDescriptor(Intl, 'DateTimeFormat');
  if (property === undefined) return;
  const { DateTimeFormat } = Intl;
  class LateFormat {
    readonly #options: ConstructorParameters<typeof DateTimeFormat>;
    #made: Intl.DateTimeFormat | undefined;

    constructor(...options: ConstructorParameters<typeof DateTimeFormat>) {
      this.#options = options;
    }

    format(date?: Date | number): string {
      this.#made ??= new DateTimeFormat(...this.#options);
      return this.#made.format(date);
    }
  }
  Object.defineProperty(Intl, 'DateTimeFormat', { ...property, value: LateFormat });
  try {
    await import('@nestjs/common');
  } finally {
    Object.defineProperty(Intl, 'DateTimeFormat', property);
  }
}
