declare const valueType: unique symbol;

/**
 * A JSON Schema that knows the type of what it lets pass. Made by {@link json} alone, so that the type is never written a second
 * time beside it.
 */
export interface Schema<T> {
  readonly [valueType]: T;
}
/** A key of an object and what it is for. Made by `json.required` and `json.optional` alone: a key that nobody describes does not compile. */
export interface Field<T, Required extends boolean> {
  readonly description: string;
  readonly schema: Schema<T>;
  readonly isRequired: Required;
}
/** What a schema lets pass: `type JoinBody = Infer<typeof joinBody>`. */
export type Infer<S extends Schema<unknown>> = S[typeof valueType];

type Fields = Readonly<Record<string, Field<unknown, boolean>>>;
type OptionalKey<F extends Fields> = {
  [K in keyof F]: F[K]['isRequired'] extends true ? never : K;
}[keyof F];
type ValueOf<F> = F extends Field<infer T, boolean> ? T : never;
type Flat<T> = { [K in keyof T]: T[K] };
/** Keys that a schema does not name pass, but nobody reads them. */
type ObjectOf<F extends Fields> = Flat<
  { readonly [K in Exclude<keyof F, OptionalKey<F>>]: ValueOf<F[K]> } & {
    readonly [K in OptionalKey<F>]?: ValueOf<F[K]>;
  }
>;

interface StringRules {
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
}
interface NumberRules {
  readonly minimum?: number;
  readonly maximum?: number;
}
interface ArrayRules {
  readonly minItems?: number;
  readonly maxItems?: number;
}
interface ObjectRules {
  readonly minProperties?: number;
  readonly maxProperties?: number;
}

/** The keywords that say whether `null` passes. */
interface Keywords {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly unknown[];
}

const made = <T>(keywords: object): Schema<T> => keywords as Schema<T>;

/** The schemas there are: JSON Schema keywords, in TypeScript. */
export const json = {
  string: (rules: StringRules = {}): Schema<string> => made({ type: 'string', ...rules }),
  integer: (rules: NumberRules = {}): Schema<number> => made({ type: 'integer', ...rules }),
  number: (rules: NumberRules = {}): Schema<number> => made({ type: 'number', ...rules }),
  boolean: (): Schema<boolean> => made({ type: 'boolean' }),
  /** Anything but absence. */
  unknown: (): Schema<unknown> => made({}),
  /** One of a few values. */
  enum: <const T extends readonly (string | number | boolean)[]>(...values: T): Schema<T[number]> =>
    made({ enum: values }),
  array: <T>(items: Schema<T>, rules: ArrayRules = {}): Schema<readonly T[]> =>
    made({ type: 'array', items, ...rules }),
  /** The same where scripts also write `{}` for a list of nothing. */
  arrayOrNothing: <T>(
    items: Schema<T>,
    rules: ArrayRules = {},
  ): Schema<readonly T[] | { readonly [key: string]: never }> =>
    made({ type: ['array', 'object'], maxProperties: 0, items, ...rules }),
  /** An object of which nothing is known. */
  anyObject: (rules: ObjectRules = {}): Schema<{ [key: string]: unknown }> => made({ type: 'object', ...rules }),
  /** An object with values of one kind by keys of the client's. */
  record: <T>(values: Schema<T>, rules: ObjectRules = {}): Schema<Readonly<Record<string, T>>> =>
    made({ type: 'object', additionalProperties: values, ...rules }),
  /** An object whose keys are known; others may be there. */
  object: <F extends Fields>(fields: F, rules: ObjectRules = {}): Schema<ObjectOf<F>> => {
    const required = Object.keys(fields).filter((key) => fields[key]!.isRequired);
    const properties = Object.fromEntries(
      Object.entries(fields).map(([key, { schema, description }]) => [key, { ...schema, description }]),
    );
    return made({ type: 'object', ...(required.length > 0 && { required }), properties, ...rules });
  },
  /** A key that must be there, and what it is for: a sentence for docs/bodies.md. */
  required: <T>(description: string, schema: Schema<T>): Field<T, true> => ({ description, schema, isRequired: true }),
  /** A key that may be absent, and what it is for. */
  optional: <T>(description: string, schema: Schema<T>): Field<T, false> => ({
    ...{ description, schema, isRequired: false },
  }),
  /** Or `null`. */
  nullable: <T>(schema: Schema<T>): Schema<T | null> => {
    const { type, enum: values, anyOf, ...rest } = schema as Keywords;
    return made({
      ...(type !== undefined && { type: [type, 'null'].flat() }),
      ...(values && { enum: [...values, null] }),
      ...(anyOf && { anyOf: [...anyOf, { type: 'null' }] }),
      ...rest,
    });
  },
  /** What one of some schemas lets pass. */
  anyOf: <const S extends readonly Schema<unknown>[]>(...schemas: S): Schema<Infer<S[number]>> =>
    made({ anyOf: schemas }),
  /** A whole body of which no key is known, and what it is: the content of an event, keys by user. */
  described: <T>(description: string, schema: Schema<T>): Schema<T> => made({ ...schema, description }),
} as const;
