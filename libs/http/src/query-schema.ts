import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import type { GuardedRequest, InboundRequest } from './access.js';

type WithQuery = Pick<InboundRequest, 'query'>;
type Given = InboundRequest['query'][string];

interface ParamRules<T> {
  /** Whether it must be there. Default false. */
  readonly required?: boolean;
  /** What counts when it is absent. */
  readonly otherwise?: T;
  /** Other names, tried in this order where it is absent: those of before it was specified. */
  readonly also?: readonly string[];
}
interface StringRules extends ParamRules<string> {
  /** Longest value, in characters. */
  readonly maxLength?: number;
  /** Whether one without a character is refused, rather than absent. Default false. */
  readonly nonEmpty?: boolean;
}
interface StringsRules {
  readonly also?: readonly string[];
  /** Most values; more are refused. */
  readonly max?: number;
  /** Whether empty values count. Default false. */
  readonly empty?: boolean;
}
interface IntegerRules extends ParamRules<number> {
  /** Smallest value; a smaller one is refused, or raised to it with `clamp`. Default 0. */
  readonly min?: number;
  /** Largest value; a larger one is refused, or lowered to it with `clamp`. */
  readonly max?: number;
  /** Move a value that is out of bounds to the nearest bound: page sizes. A negative one is refused all the same. */
  readonly clamp?: boolean;
}
type Read<T, Rules> = Rules extends { readonly required: true } | { readonly otherwise: T } ? T : T | undefined;

/** One parameter of a query string: how it is read, and what docs/bodies.md says of it. Made by {@link param} alone. */
export interface QueryParam<T> {
  /** What it holds, in words. */
  readonly type: string;
  readonly description: string;
  readonly required: boolean;
  readonly also: readonly string[];
  /** Its bounds and what counts without it, in words; may be empty. */
  readonly limits: string;
  /** @throws MatrixError 400 `M_INVALID_PARAM`, `M_MISSING_PARAM` */
  readonly read: (query: WithQuery['query'], name: string) => T;
}

/** Reads the query string of an endpoint. */
export interface QuerySchema<T> {
  readonly params: Readonly<Record<string, QueryParam<unknown>>>;
  /**
   * The parameters by the names they have on the wire.
   * @throws MatrixError 400 `M_INVALID_PARAM`, `M_MISSING_PARAM`
   */
  readonly read: (request: WithQuery) => T;
}
/** What a query string holds: `@Query(pageQuery) query: InferQuery<typeof pageQuery>`. */
export type InferQuery<S extends QuerySchema<unknown>> = S extends QuerySchema<infer T> ? T : never;

/** One value; `undefined` when absent or empty, which means the same. */
function one(query: WithQuery['query'], name: string): string | undefined {
  const value: Given = query[name];
  if (value === undefined || typeof value === 'string') return value === '' ? undefined : value;
  throw MatrixError.invalidParam(`Query parameter '${name}' may be given once only`);
}

function paramOf<T extends string | number | boolean>(
  kind: {
    readonly type: string;
    readonly limits?: readonly string[];
    readonly parse: (text: string, name: string) => T;
  },
  description: string,
  { required = false, otherwise, also = [] }: ParamRules<T>,
): QueryParam<T | undefined> {
  const limits = [...(kind.limits ?? []), ...(otherwise === undefined ? [] : [`default \`${otherwise}\``])].join('; ');
  return {
    ...{ type: kind.type, description, required, also, limits },
    read: (query, name) => {
      let found = name;
      let text = one(query, name);
      for (let at = 0; text === undefined && at < also.length; at++) text = one(query, (found = also[at]!));
      if (text !== undefined) return kind.parse(text, found);
      if (required) throw MatrixError.missingParam(`Missing query parameter '${name}'`);
      return otherwise;
    },
  };
}

function parseInteger(
  text: string,
  name: string,
  { min = 0, max = Number.MAX_SAFE_INTEGER, clamp }: IntegerRules,
): number {
  if (!/^-?\d{1,15}$/.test(text)) throw MatrixError.invalidParam(`Query parameter '${name}' must be an integer`);
  const value = Number(text);
  if (value >= min && value <= max) return value;
  // A number of less than nothing is a mistake, and not a wish for as few as there can be.
  if (clamp === true && value >= 0) return value < min ? min : max;
  throw MatrixError.invalidParam(
    `Query parameter '${name}' must be ${value < min ? `at least ${min}` : `at most ${max}`}`,
  );
}

function choiceOf<T extends string>(choices: readonly T[]): (text: string, name: string) => T {
  return (text, name) => {
    const found = choices.find((choice) => choice === text);
    if (found !== undefined) return found;
    throw MatrixError.invalidParam(`Query parameter '${name}' must be one of ${choices.join(', ')}`);
  };
}

const isTrue = choiceOf(['true', 'false']);
const inWords = (choices: readonly string[]): string => choices.map((choice) => `\`${choice}\``).join(', ');

/** The parameters there are. Absent or empty is the same; a second value of what has one is refused. */
export const param = {
  /** A text. */
  string: <const Rules extends StringRules>(description: string, rules?: Rules): QueryParam<Read<string, Rules>> => {
    const { maxLength, nonEmpty = false }: StringRules = rules ?? {};
    const parse = (text: string, name: string): string => {
      if (maxLength === undefined || text.length <= maxLength) return text;
      throw MatrixError.invalidParam(`Query parameter '${name}' is too long`);
    };
    const limits = [
      ...(nonEmpty ? ['not empty'] : []),
      ...(maxLength === undefined ? [] : [`at most ${maxLength} characters`]),
    ];
    const made = paramOf({ type: 'string', limits, parse }, description, rules ?? {});
    const read: typeof made.read = (query, name) => {
      if (nonEmpty && query[name] === '') throw MatrixError.invalidParam(`Query parameter '${name}' is empty`);
      return made.read(query, name);
    };
    return { ...made, read } as QueryParam<Read<string, Rules>>;
  },
  /** A whole number of at most fifteen digits. */
  integer: <const Rules extends IntegerRules>(description: string, rules?: Rules): QueryParam<Read<number, Rules>> => {
    const { min = 0, max, clamp }: IntegerRules = rules ?? {};
    const range =
      max === undefined
        ? min === 0
          ? []
          : [`${min} or more`]
        : [`${min} to ${max}${clamp ? ', the nearest counts' : ''}`];
    const parse = (text: string, name: string): number => parseInteger(text, name, rules ?? {});
    return paramOf({ type: 'integer', limits: range, parse }, description, rules ?? {}) as QueryParam<
      Read<number, Rules>
    >;
  },
  /** `true` or `false`. */
  boolean: <const Rules extends ParamRules<boolean>>(
    description: string,
    rules?: Rules,
  ): QueryParam<Read<boolean, Rules>> => {
    const parse = (text: string, name: string): boolean => isTrue(text, name) === 'true';
    return paramOf({ type: 'boolean', parse }, description, rules ?? {}) as QueryParam<Read<boolean, Rules>>;
  },
  /** One of a few words. */
  choice: <const T extends string, const Rules extends ParamRules<T>>(
    description: string,
    choices: readonly T[],
    rules?: Rules,
  ): QueryParam<Read<T, Rules>> =>
    paramOf({ type: inWords(choices), parse: choiceOf(choices) }, description, rules ?? {}) as QueryParam<
      Read<T, Rules>
    >,
  /** All values of a parameter that may be repeated (`via`, `server_name`), in order. */
  strings: (
    description: string,
    { also = [], max, empty = false }: StringsRules = {},
  ): QueryParam<readonly string[]> => ({
    ...{ type: 'string, may be repeated', description, required: false, also },
    limits: max === undefined ? '' : `at most ${max}`,
    read: (query, name) => {
      const values = [name, ...also].flatMap((each) => query[each] ?? []).filter((value) => empty || value !== '');
      if (max !== undefined && values.length > max)
        throw MatrixError.invalidParam(`Query parameter '${name}' may be given ${max} times at most`);
      return values;
    },
  }),
  /** The same for one of a few words. */
  choices: <const T extends string>(
    description: string,
    choices: readonly T[],
    rules: StringsRules = {},
  ): QueryParam<readonly T[]> => {
    const all = param.strings(description, rules);
    const check = choiceOf(choices);
    return {
      ...{ ...all, type: `${inWords(choices)}, may be repeated` },
      read: (query, name) => all.read(query, name).map((text) => check(text, name)),
    };
  },
  /** What `parse` makes of one value, or of none; it throws MatrixError 400 `M_INVALID_PARAM` where that is nothing it knows. */
  parsed: <T>(description: string, type: string, parse: (text: string | undefined) => T): QueryParam<T> => ({
    ...{ type, description, required: false, also: [], limits: '' },
    read: (query, name) => parse(one(query, name)),
  }),
} as const;

/** The query string of an endpoint, by the names of its parameters. Others may be there. */
export function queryOf<P extends Readonly<Record<string, QueryParam<unknown>>>>(
  params: P,
): QuerySchema<{ readonly [K in keyof P]: P[K] extends QueryParam<infer T> ? T : never }> {
  const entries = Object.entries(params);
  return {
    params,
    read: ({ query }) => {
      const found: Record<string, unknown> = {};
      for (const [name, { read }] of entries) found[name] = read(query, name);
      return found as { readonly [K in keyof P]: P[K] extends QueryParam<infer T> ? T : never };
    },
  };
}

const queryMetadata = 'rookery:query';

/** The schema of the query string of a controller's method; `undefined` where it reads none. */
export function querySchemaOf(controller: object, method: string): QuerySchema<unknown> | undefined {
  return Reflect.getMetadata(queryMetadata, controller, method) as QuerySchema<unknown> | undefined;
}

/**
 * Injects the parameters of the query string, read by `schema`; the parameter's type is `InferQuery<typeof schema>`, and
 * docs/bodies.md says what is in it.
 * @throws MatrixError 400 `M_INVALID_PARAM`, `M_MISSING_PARAM`
 */
export function Query(schema: QuerySchema<unknown>): ParameterDecorator {
  const inject = createParamDecorator((_: unknown, context: ExecutionContext) =>
    schema.read(context.switchToHttp().getRequest<GuardedRequest>().inbound),
  )();
  return (controller, method, index) => {
    if (method !== undefined) Reflect.defineMetadata(queryMetadata, schema, controller, method);
    inject(controller, method, index);
  };
}
