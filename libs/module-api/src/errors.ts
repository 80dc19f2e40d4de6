/**
 * The module's settings are wrong: thrown by `parseConfig`. The server refuses to start and shows the message together with
 * the file and line of the module's entry.
 */
export class ConfigError extends Error {
  /** Brand, since a module may carry its own copy of this class. */
  readonly $$type = 'ConfigError';

  /**
   * @param message what was expected, for the operator
   * @param path keys that lead to the wrong value inside the module's `config`, for example `['rules', 0, 'action']`
   * @param others what else is wrong: the operator reads everything at once
   */
  constructor(
    message: string,
    readonly path: readonly (string | number)[] = [],
    readonly others: readonly { readonly message: string; readonly path: readonly (string | number)[] }[] = [],
  ) {
    super(message);
    this.name = 'ConfigError';
  }

  /** Whether a thrown value is a ConfigError, also one of another copy of this package. */
  static is(value: unknown): value is ConfigError {
    return typeof value === 'object' && value !== null && (value as { $$type?: unknown }).$$type === 'ConfigError';
  }
}
