import { type FederationClient, FederationRequestError, type RequestOptions } from '@rookery/federation-client';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { FederationClientApi } from '@rookery/module-api';

/** A module waits for its answer: neither long nor for large ones. */
const bounds: RequestOptions = { timeoutMs: 30_000, maxBytes: 10_485_760 };

/** `api.federation`: signed requests of modules to the servers that their entries allow. */
export function federationApi(client: FederationClient): FederationClientApi {
  return {
    getJson: (destination, path, query) => asModuleSees(() => client.getJson(destination, path, query, bounds)),
    putJson: (destination, path, body) =>
      asModuleSees(() => {
        if (!isJsonObject(body)) throw new RangeError('The body of a federation request is a JSON object');
        return client.putJson(destination, path, body, bounds);
      }),
  };
}

async function asModuleSees(send: () => Promise<JsonObject>): Promise<JsonObject> {
  try {
    return await send();
  } catch (error) {
    throw error instanceof FederationRequestError ? error.toMatrixError() : (error as MatrixError | RangeError);
  }
}
