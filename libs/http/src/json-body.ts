import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { soon } from '@rookery/platform';
import type { Ajv, ErrorObject, ValidateFunction } from 'ajv';
import { createRequire } from 'node:module';
import type { GuardedRequest } from './access.js';
import type { Schema } from './json-schema.js';

let compiler: Ajv | undefined;

/** What compiles schemas: loaded with the first of them, which takes half a megabyte of source and no start needs. */
function schemaCompiler(): Ajv {
  if (compiler !== undefined) return compiler;
  // At once, for a body is checked in the turn in which it is there.
  const library = createRequire(import.meta.url)('ajv') as typeof import('ajv');
  // JSON can write numbers that are too large for one; they are no numbers.
  compiler = new library.Ajv({ strict: false, strictNumbers: true, validateFormats: false, allowUnionTypes: true });
  return compiler;
}

/** Keywords that judge a value rather than the shape of the JSON. */
const valueKeywords = new Set([
  'enum',
  'const',
  'pattern',
  'minLength',
  'maxLength',
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'multipleOf',
  'minItems',
  'maxItems',
  'minProperties',
  'maxProperties',
  'uniqueItems',
]);

/** The error for a value of another type than the schema's. */
type WrongType = 'M_BAD_JSON' | 'M_INVALID_PARAM';

const readablePath = (pointer: string): string =>
  pointer
    .slice(1)
    .split('/')
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .join('.')
    .slice(0, 200);

function toMatrixError(error: ErrorObject | undefined, wrongType: WrongType): MatrixError {
  if (error === undefined) return MatrixError.badJson('The JSON has the wrong shape');
  const path = readablePath(error.instancePath);
  if (error.keyword === 'required') {
    const missing = String((error.params as { missingProperty?: unknown }).missingProperty);
    return path === ''
      ? MatrixError.missingParam(`Missing parameter '${missing}'`)
      : MatrixError.badJson(`Missing key '${path}.${missing}'`);
  }
  const values =
    error.keyword === 'enum' ? `: ${(error.params as { allowedValues: unknown[] }).allowedValues.join(', ')}` : '';
  const message = `${path === '' ? 'The body' : `'${path}'`} ${error.message ?? 'is not valid'}${values}`;
  const isParam = valueKeywords.has(error.keyword) || (wrongType === 'M_INVALID_PARAM' && error.keyword === 'type');
  return isParam ? MatrixError.invalidParam(message) : MatrixError.badJson(message);
}

/** The parts of a JSON Schema that say where optional keys are. */
interface Shape {
  readonly type?: string | readonly string[];
  readonly nullable?: boolean;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Shape[];
  readonly oneOf?: readonly Shape[];
  readonly allOf?: readonly Shape[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly additionalProperties?: boolean | Shape;
  readonly items?: Shape | boolean;
}

/** Whether `null` is one of the values that a schema is about. */
function takesNull({ type, nullable, enum: values, const: value, anyOf, oneOf }: Shape): boolean {
  if (nullable === true || value === null || values?.includes(null)) return true;
  if (type !== undefined) return [type].flat().includes('null');
  return [...(anyOf ?? []), ...(oneOf ?? [])].some(takesNull);
}

type Cleaner = (value: unknown) => void;

/** What takes optional keys away whose value is `null`, in place; `undefined` where a schema has none. */
function nullCleaner(schema: Shape | boolean | undefined): Cleaner | undefined {
  if (typeof schema !== 'object') return undefined;
  const { properties = {}, required = [], additionalProperties, items, allOf = [] } = schema;
  const optional = Object.keys(properties).filter((key) => !required.includes(key) && !takesNull(properties[key]!));
  const inner = Object.entries(properties).flatMap(([key, value]): [string, Cleaner][] => {
    const cleaner = nullCleaner(value);
    return cleaner === undefined ? [] : [[key, cleaner]];
  });
  const others = nullCleaner(additionalProperties);
  const ofItems = nullCleaner(items);
  const parts = allOf.flatMap((part) => nullCleaner(part) ?? []);
  if (optional.length + inner.length + parts.length === 0 && others === undefined && ofItems === undefined)
    return undefined;
  return (value) => {
    for (const clean of parts) clean(value);
    if (Array.isArray(value)) {
      if (ofItems !== undefined) value.forEach(ofItems);
      return;
    }
    if (!isJsonObject(value)) return;
    for (const key of optional) if (value[key] === null) delete value[key];
    for (const [key, clean] of inner) if (Object.hasOwn(value, key)) clean(value[key]);
    if (others !== undefined) for (const key of Object.keys(value)) if (!(key in properties)) others(value[key]);
  };
}

/**
 * Makes a JSON Schema into a check that throws what a client should see. It is compiled once, when it is first needed: of the
 * many endpoints most servers use a few. Typed clients write `null` for what they leave out: an optional key whose value is
 * `null` is taken away, unless the schema knows that value.
 * @returns a function that gives back what it was given, or throws MatrixError 400: `M_MISSING_PARAM` for an absent top-level key, `M_INVALID_PARAM` for a
 *   value out of its range, `wrongType` for one of another type, `M_BAD_JSON` naming the path for everything else
 */
export function compileSchema<T>(schema: Schema<T>, wrongType: WrongType = 'M_BAD_JSON'): (value: unknown) => T {
  let validate: ValidateFunction | undefined;
  let clean: Cleaner | undefined;
  return (value) => {
    if (validate === undefined) {
      validate = schemaCompiler().compile(schema as object);
      clean = nullCleaner(schema as Shape);
    }
    clean?.(value);
    if (!validate(value)) throw toMatrixError(validate.errors?.[0], wrongType);
    return value as T;
  };
}

/** How {@link JsonBody} treats what it gets. */
export interface JsonBodyOptions {
  /** An absent or empty body, and `null`, count as `{}`. Default false: 400 `M_NOT_JSON`. */
  readonly optional?: boolean;
  /** Most values and keys: 413 `M_TOO_LARGE`. Default 500,000; for routes that take large bodies and go through them in one turn. */
  readonly maxValues?: number;
  /** The error for a value of another type than the schema's. Default `M_BAD_JSON`; admin scripts know the other one. */
  readonly wrongType?: WrongType;
}

const bodyMetadata = 'rookery:body';

/** Says which schema the body of a method has; for decorators of parameters that check it. */
export function takesBody(schema: Schema<object>, inject: ParameterDecorator): ParameterDecorator {
  return (controller, method, index) => {
    if (method !== undefined) Reflect.defineMetadata(bodyMetadata, schema, controller, method);
    inject(controller, method, index);
  };
}

/** The schema of the body of a controller's method; `undefined` where it has none. */
export function bodySchemaOf(controller: object, method: string): object | undefined {
  return Reflect.getMetadata(bodyMetadata, controller, method) as object | undefined;
}

/**
 * Injects the JSON object of the request's body, checked with `schema`; the parameter's type is `Infer<typeof schema>`, and
 * docs/bodies.md says what is in it. Keys the schema does not name are kept.
 * @throws MatrixError 400 `M_NOT_JSON`, `M_BAD_JSON`, `M_MISSING_PARAM` or `M_INVALID_PARAM`
 */
export function JsonBody(schema: Schema<object>, options: JsonBodyOptions = {}): ParameterDecorator {
  const check = compileSchema(schema, options.wrongType);
  const take = (given: unknown): JsonObject => {
    const body = (given === undefined || given === null) && options.optional ? {} : given;
    if (body === undefined) throw MatrixError.missingBody();
    if (!isJsonObject(body)) throw MatrixError.badJson('The body must be a JSON object');
    check(body);
    return body;
  };
  const inject = createParamDecorator((_: unknown, context: ExecutionContext) => {
    return soon(context.switchToHttp().getRequest<GuardedRequest>().inbound.json(options.maxValues), take);
  })();
  return takesBody(schema, inject);
}
