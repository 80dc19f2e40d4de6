/** Identifiers, wire types and error codes of the Matrix protocol. */
export { type Json, type JsonObject, isJsonObject } from './json.js';
export { MatrixError } from './errors.js';
