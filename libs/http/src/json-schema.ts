declare const valueType: unique symbol;
/** Marks keys that may be absent; not part of the schema that is compiled. */
const absent = Symbol('optional');

/**
 * A JSON Schema that knows the type of what it lets pass. Made by {@link json} alone, so that the type is never written a second
 * time beside it.
 */
export interface Schema<T> {
  readonly [valueType]: T;
}
/** A key of an object that may be absent. */
export interface OptionalSchema<T> extends Schema<T> {
  readonly [absent]: true;
}
/** What a schema lets pass: `type JoinBody = Infer<typeof joinBody>`. */
export type Infer<S extends Schema<unknown>> = S[typeof valueType];

type Fields = Readonly<Record<string, Schema<unknown>>>;
type OptionalKey<F extends Fields> = {
  [K in keyof F]: F[K] extends OptionalSchema<unknown> ? K : never;
}[keyof F];
type Flat<T> = { [K in keyof T]: T[K] };
/** Keys that a schema does not name pass, but nobody reads them. */
type ObjectOf<F extends Fields> = Flat<
  { readonly [K in Exclude<keyof F, OptionalKey<F>>]: Infer<F[K]> } & {
    readonly [K in OptionalKey<F>]?: Infer<F[K]>;
  }
>;

/** What it is for; for docs/bodies.md. */
interface Described {
  readonly description?: string;
}
interface StringRules extends Described {
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
}
interface NumberRules extends Described {
  readonly minimum?: number;
  readonly maximum?: number;
}
interface ArrayRules extends Described {
  readonly minItems?: number;
  readonly maxItems?: number;
}
interface ObjectRules extends Described {
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
const isOptional = (schema: Schema<unknown>): boolean => absent in schema;

/** The schemas there are: JSON Schema keywords, in TypeScript. */
export const json = {
  string: (rules: StringRules = {}): Schema<string> => made({ type: 'string', ...rules }),
  integer: (rules: NumberRules = {}): Schema<number> => made({ type: 'integer', ...rules }),
  number: (rules: NumberRules = {}): Schema<number> => made({ type: 'number', ...rules }),
  boolean: (rules: Described = {}): Schema<boolean> => made({ type: 'boolean', ...rules }),
  /** Anything but absence. */
  unknown: (rules: Described = {}): Schema<unknown> => made({ ...rules }),
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
    const required = Object.keys(fields).filter((key) => !isOptional(fields[key]!));
    return made({ type: 'object', ...(required.length > 0 && { required }), properties: fields, ...rules });
  },
  /** A key that may be absent. */
  optional: <T>(schema: Schema<T>): OptionalSchema<T> => ({ ...schema, [absent]: true }),
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
  /** The same with a word on what it is for. */
  described: <S extends Schema<unknown>>(description: string, schema: S): S => ({ ...schema, description }),
} as const;
