import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';

/**
 * What a module hands over, as JSON would carry it: a copy that the module cannot change afterwards, without anything that
 * is not data.
 * @throws MatrixError 400 `M_BAD_JSON`
 */
export function plainJson(value: unknown, what: string): JsonObject {
  let copy: unknown;
  try {
    copy = JSON.parse(JSON.stringify(value) ?? 'null');
  } catch (error) {
    throw MatrixError.badJson(`${what} cannot be written as JSON: ${(error as Error).message}`);
  }
  if (!isJsonObject(copy)) throw MatrixError.badJson(`${what} has to be an object`);
  return copy;
}
