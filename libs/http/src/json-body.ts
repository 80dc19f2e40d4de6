import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import type { GuardedRequest } from './access.js';

// JSON can write numbers that are too large for one; they are no numbers.
const ajv = new Ajv({ strict: false, strictNumbers: true, validateFormats: false, allowUnionTypes: true });

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

const readablePath = (pointer: string): string =>
  pointer
    .slice(1)
    .split('/')
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .join('.')
    .slice(0, 200);

function toMatrixError(error: ErrorObject | undefined): MatrixError {
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
  return valueKeywords.has(error.keyword) ? MatrixError.invalidParam(message) : MatrixError.badJson(message);
}

/**
 * Makes a JSON Schema into a check that throws what a client should see. It is compiled once, when it is first needed: of the
 * many endpoints most servers use a few.
 * @returns a function that throws MatrixError 400: `M_MISSING_PARAM` for an absent top-level key, `M_INVALID_PARAM` for a
 *   value out of its range, `M_BAD_JSON` naming the path for everything else
 */
export function compileSchema(schema: object): (value: unknown) => void {
  let validate: ValidateFunction | undefined;
  return (value) => {
    validate ??= ajv.compile(schema);
    if (!validate(value)) throw toMatrixError(validate.errors?.[0]);
  };
}

/** How {@link JsonBody} treats what it gets. */
export interface JsonBodyOptions {
  /** An absent or empty body counts as `{}`. Default false: 400 `M_NOT_JSON`. */
  readonly optional?: boolean;
}

/**
 * Injects the JSON object of the request's body, checked with `schema`. Keys the schema does not name are kept.
 * @throws MatrixError 400 `M_NOT_JSON`, `M_BAD_JSON`, `M_MISSING_PARAM` or `M_INVALID_PARAM`
 */
export function JsonBody(schema?: object, options: JsonBodyOptions = {}): ParameterDecorator {
  const check = schema === undefined ? undefined : compileSchema(schema);
  const take = (given: unknown): JsonObject => {
    const body = given === undefined && options.optional ? {} : given;
    if (body === undefined) throw new MatrixError(400, 'M_NOT_JSON', 'A JSON body is required');
    if (!isJsonObject(body)) throw MatrixError.badJson('The body must be a JSON object');
    check?.(body);
    return body;
  };
  return createParamDecorator((_: unknown, context: ExecutionContext) => {
    const json = context.switchToHttp().getRequest<GuardedRequest>().inbound.json();
    return json instanceof Promise ? json.then(take) : take(json);
  })();
}

/** Largest number of fields in a form. */
const maxFormFields = 100;

/**
 * Injects the fields of a URL-encoded form as `Record<string, string[]>` without prototype; a repeated field keeps its
 * order. An absent body has no fields.
 * @throws MatrixError 400 `M_INVALID_PARAM` for more than a hundred fields
 */
export const FormBody = createParamDecorator((_: unknown, context: ExecutionContext): Record<string, string[]> => {
  const { inbound } = context.switchToHttp().getRequest<GuardedRequest>();
  const fields = Object.create(null) as Record<string, string[]>;
  let count = 0;
  for (const [name, value] of new URLSearchParams(inbound.rawBody?.toString('utf8') ?? '')) {
    if (++count > maxFormFields) throw MatrixError.invalidParam('Too many form fields');
    (fields[name] ??= []).push(value);
  }
  return fields;
});
