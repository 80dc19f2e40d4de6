import { Controller, Get, Param, Post } from '@nestjs/common';
import {
  Access,
  Inbound,
  type InboundRequest,
  type Infer,
  type InferQuery,
  json,
  JsonBody,
  param,
  Query,
  queryOf,
} from '@rookery/http';
import type { WantedKeys } from '@rookery/federation-client';
import { MatrixError } from '@rookery/matrix-types';
import { Clock } from '@rookery/platform';
import { KeyPublisher } from './key-publisher.js';

/** Servers, and keys of each, in one query. */
const maxServers = 100;
const maxKeysPerServer = 20;

const criteria = json.object({
  minimum_valid_until_ts: json.optional(
    'Until when the key has to be valid, ms since the epoch; until now unless given.',
    json.integer(),
  ),
});
const querySchema = json.object({
  server_keys: json.required(
    'What is asked of each key, by server and id of the key.',
    json.record(json.record(criteria, { maxProperties: maxKeysPerServer }), {
      maxProperties: maxServers,
    }),
  ),
});

const ofServerQuery = queryOf({
  minimum_valid_until_ts: param.integer('Until when the keys have to be valid, milliseconds.'),
});

/** The keys of this server, and what it knows of others'. Open to everybody. */
@Controller()
export class KeyServerController {
  constructor(
    private readonly publisher: KeyPublisher,
    private readonly clock: Clock,
  ) {}

  /** GET /_matrix/key/v2/server */
  @Get(['/_matrix/key/v2/server', '/_matrix/key/v2/server/:keyId'])
  @Access({ auth: 'none' })
  own(): object {
    return this.publisher.own();
  }

  /** GET /_matrix/key/v2/query/{serverName} */
  @Get(['/_matrix/key/v2/query/:serverName', '/_matrix/key/v2/query/:serverName/:keyId'])
  @Access({ auth: 'none' })
  async query(
    @Inbound() request: InboundRequest,
    @Param('serverName') serverName: string,
    @Param('keyId') keyId: string | undefined,
    @Query(ofServerQuery) query: InferQuery<typeof ofServerQuery>,
  ): Promise<object> {
    const untilTs = query.minimum_valid_until_ts ?? this.clock.nowMs();
    const ids = keyId === undefined ? new Map<string, number>() : new Map([[keyId, untilTs]]);
    return this.#answer(request, new Map([[serverName, ids]]), untilTs);
  }

  /** POST /_matrix/key/v2/query */
  @Post('/_matrix/key/v2/query')
  @Access({ auth: 'none', bodyLimitBytes: 262_144 })
  queryMany(
    @Inbound() request: InboundRequest,
    @JsonBody(querySchema) body: Infer<typeof querySchema>,
  ): Promise<object> {
    const nowTs = this.clock.nowMs();
    const wanted = new Map<string, Map<string, number>>();
    for (const [serverName, ids] of Object.entries(body.server_keys)) {
      const ofServer = new Map<string, number>();
      for (const [keyId, { minimum_valid_until_ts: untilTs = nowTs }] of Object.entries(ids)) {
        if (!Number.isSafeInteger(untilTs)) throw MatrixError.badJson('minimum_valid_until_ts is not a time');
        ofServer.set(keyId, untilTs);
      }
      wanted.set(serverName, ofServer);
    }
    return this.#answer(request, wanted);
  }

  async #answer({ ip }: InboundRequest, wanted: WantedKeys, untilTs?: number): Promise<object> {
    return { server_keys: await this.publisher.query(ip, wanted, untilTs) };
  }
}
