import { ConfigError } from './errors.js';

/** One thing that a {@link StandardSchema} finds wrong. */
export interface SchemaIssue {
  readonly message: string;
  /** Keys that lead to the wrong value; the whole value where there are none. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/**
 * A schema of any library that follows [Standard Schema](https://standardschema.dev): zod, valibot, ArkType and others. `Output` is what
 * it makes of a value that is right.
 */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (
      value: unknown,
    ) =>
      | { readonly value: Output; readonly issues?: undefined }
      | { readonly issues: readonly SchemaIssue[] }
      | Promise<unknown>;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
    /** Where the library can say what it takes as JSON Schema (Standard JSON Schema). */
    readonly jsonSchema?:
      { readonly input: (options: { readonly target: string }) => Record<string, unknown> } | undefined;
  };
}

const maxIssues = 20;

/** What a schema makes of a module's `config`. A missing one is an empty one. @throws ConfigError with everything that is wrong */
export function checkedBySchema<Output>(schema: StandardSchema<Output>, raw: unknown): Output {
  const checks = (schema as Partial<typeof schema> | undefined)?.['~standard'];
  if (typeof checks?.validate !== 'function')
    throw new TypeError('configSchema is no Standard Schema: it has no ["~standard"].validate()');
  const result = checks.validate(raw ?? {});
  if ('then' in result) {
    (result as Promise<unknown>).catch(() => {});
    throw new TypeError('configSchema checks asynchronously: check there, and do the work in register()');
  }
  if (!result.issues) return result.value;
  const [first, ...others] = result.issues.slice(0, maxIssues).map(({ message, path = [] }) => ({
    message,
    path: Array.from(path, (part) => {
      const key = typeof part === 'object' ? part.key : part;
      return typeof key === 'number' ? key : String(key);
    }),
  }));
  throw new ConfigError(first?.message ?? 'it is not right', first?.path, others);
}

/** What a schema takes, as JSON Schema 2020-12; `undefined` where its library cannot say. */
export function jsonSchemaOf(schema: StandardSchema): Readonly<Record<string, unknown>> | undefined {
  try {
    return schema['~standard'].jsonSchema?.input({ target: 'draft-2020-12' });
  } catch {
    return undefined;
  }
}
