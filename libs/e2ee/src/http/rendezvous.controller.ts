import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import {
  Access,
  client,
  HttpReply,
  Inbound,
  type InboundRequest,
  type Infer,
  json,
  JsonBody,
  networkOf,
  Who,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type Requester } from '@rookery/platform';
import { RendezvousSessions } from '../rendezvous/rendezvous-sessions.js';

const path = '/io.element.msc4388/rendezvous';
const lifetimeMs = 120_000;
const data = json.string({ maxLength: 4_096 });

const createBody = json.object({ data: json.required('What is kept for the other device.', data) });
const writeBody = json.object({
  sequence_token: json.required('Which data is replaced: the token that came with it.', json.string()),
  data: json.required('What is kept in place of it.', data),
});

/** The channel over which one device signs in another (MSC4388). */
@Controller()
export class RendezvousController {
  constructor(
    private readonly sessions: RendezvousSessions,
    private readonly config: Config,
    private readonly clock: Clock,
  ) {}

  /** GET /_matrix/client/unstable/io.element.msc4388/rendezvous */
  @Get(client(['unstable'], path))
  @Access({ auth: 'optional', guests: true })
  available(@Who() requester: Requester | undefined): object {
    return { create_available: this.#mode() === 'open' || requester !== undefined };
  }

  /** POST /_matrix/client/unstable/io.element.msc4388/rendezvous */
  @Post(client(['unstable'], path))
  @Access({ auth: 'optional', guests: true })
  create(
    @Who() requester: Requester | undefined,
    @Inbound() { ip }: InboundRequest,
    @JsonBody(createBody) body: Infer<typeof createBody>,
  ): object {
    if (this.#mode() === 'authenticated' && requester === undefined)
      throw MatrixError.missingToken('Only who is signed in may begin a session');
    const holder = requester?.userId ?? networkOf(ip);
    const session = this.sessions.create(holder, Buffer.from(body.data), '', lifetimeMs);
    return {
      id: session.id,
      sequence_token: session.version,
      expires_in_ms: session.expiresMs - this.clock.nowMs(),
    };
  }

  /** GET /_matrix/client/unstable/io.element.msc4388/rendezvous/{id} */
  @Get(client(['unstable'], `${path}/:id`))
  @Access({ auth: 'none' })
  read(@Inbound() { headers }: InboundRequest, @Param('id') id: string): HttpReply {
    this.#mode();
    // What strangers leave here is not to be opened as a page of this server.
    const mode = headers['sec-fetch-mode'];
    if (mode === 'navigate' || headers['sec-fetch-dest'] === 'document' || headers['sec-fetch-user'] !== undefined)
      throw MatrixError.forbidden('A session cannot be opened in a browser');
    const session = this.sessions.get(id);
    const body = {
      data: session.data.toString(),
      sequence_token: session.version,
      expires_in_ms: session.expiresMs - this.clock.nowMs(),
    };
    return HttpReply.json(200, body, {
      'cache-control': 'no-store, no-transform',
      'x-content-type-options': 'nosniff',
    });
  }

  /** PUT /_matrix/client/unstable/io.element.msc4388/rendezvous/{id} */
  @Put(client(['unstable'], `${path}/:id`))
  @Access({ auth: 'none' })
  write(
    @Param('id') id: string,
    @JsonBody(writeBody)
    body: Infer<typeof writeBody>,
  ): object {
    this.#mode();
    const written = this.sessions.write(id, body.sequence_token, Buffer.from(body.data), '');
    if (written === undefined) throw MatrixError.concurrentWrite();
    return { sequence_token: written.version };
  }

  /** DELETE /_matrix/client/unstable/io.element.msc4388/rendezvous/{id} */
  @Delete(client(['unstable'], `${path}/:id`))
  @Access({ auth: 'none' })
  end(@Param('id') id: string): object {
    this.#mode();
    this.sessions.delete(id);
    return {};
  }

  /** @throws MatrixError 404 `M_UNRECOGNIZED` where it is switched off */
  #mode(): 'open' | 'authenticated' {
    const mode = this.config.get('experimental_features.msc4388_mode');
    if (mode !== 'open' && mode !== 'authenticated') throw MatrixError.unrecognized();
    return mode;
  }
}
