import { AsyncLocalStorage } from 'node:async_hooks';

// The ports of what is being put together, whatever else the process does meanwhile.
const assembling = new AsyncLocalStorage<Port<unknown>[]>();

/**
 * What a lib needs of one that lies above it, which gives it while the server is put together: calls go down, ports and hooks go
 * up. A server does not start while a required port is empty.
 */
export class Port<T> {
  #given: T | undefined;

  /** @param name snake_case, unique in a server @param need whether the server can do without */
  constructor(
    readonly name: string,
    readonly need: 'required' | 'optional',
  ) {
    assembling.getStore()?.push(this);
  }

  /** What was given; `undefined` before that, and where nobody gives an optional one. */
  get given(): T | undefined {
    return this.#given;
  }

  /** Fills the port. @throws Error when somebody has done so */
  give(implementation: T): void {
    if (this.#given !== undefined) throw new Error(`The port ${this.name} is taken`);
    this.#given = implementation;
  }

  /** For tests: puts something else in, or takes away what is there. */
  replace(implementation: T | undefined): void {
    this.#given = implementation;
  }
}

/**
 * Puts a server together, and looks for what one of its parts needs and no other has given.
 * @returns what was built, and the names of its required ports that are empty
 */
export async function assemble<T>(
  build: () => Promise<T>,
): Promise<{ readonly built: T; readonly empty: readonly string[] }> {
  const ports: Port<unknown>[] = [];
  const built = await assembling.run(ports, build);
  const empty = ports.filter(({ need, given }) => need === 'required' && given === undefined);
  return { built, empty: empty.map(({ name }) => name).toSorted() };
}
