import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import { Access, client, HttpReply, Inbound, type InboundRequest, networkOf, ownUrl } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { type RendezvousSession, RendezvousSessions } from '../rendezvous/rendezvous-sessions.js';

const sessionPath = '/_synapse/client/rendezvous';
const lifetimeMs = 60_000;

/** The first form of the channel for sign-in by QR code: plain text, told apart by entity tags (MSC4108). */
@Controller()
export class FormerRendezvousController {
  constructor(
    private readonly sessions: RendezvousSessions,
    private readonly config: Config,
  ) {}

  /** POST /_matrix/client/unstable/org.matrix.msc4108/rendezvous */
  @Post(client(['unstable'], '/org.matrix.msc4108/rendezvous'))
  @Access({ auth: 'none' })
  create(@Inbound() request: InboundRequest): HttpReply {
    const elsewhere = this.config.get('experimental_features.msc4108_delegation_endpoint');
    if (elsewhere !== undefined) return HttpReply.redirect(elsewhere, 307);
    this.#check();
    const session = this.sessions.create(networkOf(request.ip), bodyOf(request), 'text/plain', lifetimeMs);
    return HttpReply.json(
      201,
      { url: ownUrl(this.config, `${sessionPath.slice(1)}/${session.id}`) },
      headersOf(session),
    );
  }

  /** GET /_synapse/client/rendezvous/{id} */
  @Get(`${sessionPath}/:id`)
  @Access({ auth: 'none' })
  read(@Inbound() { headers }: InboundRequest, @Param('id') id: string): HttpReply {
    this.#check();
    const session = this.sessions.get(id);
    if (headers['if-none-match'] === tagOf(session)) return new HttpReply(304, headersOf(session), undefined);
    return new HttpReply(200, { 'content-type': session.type, ...headersOf(session) }, session.data);
  }

  /** PUT /_synapse/client/rendezvous/{id} */
  @Put(`${sessionPath}/:id`)
  @Access({ auth: 'none' })
  write(@Inbound() request: InboundRequest, @Param('id') id: string): HttpReply {
    this.#check();
    const wanted = request.headers['if-match'];
    if (typeof wanted !== 'string') throw MatrixError.missingParam('The header If-Match is missing');
    const version = /^"(.*)"$/.exec(wanted)?.[1] ?? '';
    const written = this.sessions.write(id, version, bodyOf(request), 'text/plain');
    if (written !== undefined) return new HttpReply(202, headersOf(written), undefined);
    const body = {
      errcode: 'M_UNKNOWN',
      error: 'Somebody else has written since',
      'org.matrix.msc4108.errcode': 'M_CONCURRENT_WRITE',
    };
    return HttpReply.json(412, body, headersOf(this.sessions.get(id)));
  }

  /** DELETE /_synapse/client/rendezvous/{id} */
  @Delete(`${sessionPath}/:id`)
  @Access({ auth: 'none' })
  end(@Param('id') id: string): HttpReply {
    this.#check();
    this.sessions.delete(id);
    return new HttpReply(204, exposed, undefined);
  }

  /** @throws MatrixError 404 `M_UNRECOGNIZED` where it is switched off */
  #check(): void {
    if (!this.config.get('experimental_features.msc4108_enabled')) throw MatrixError.unrecognized();
  }
}

/** Web clients read the entity tag. */
const exposed = {
  'access-control-expose-headers': 'ETag',
  'cache-control': 'no-store, no-transform',
  pragma: 'no-cache',
};

const tagOf = ({ version }: RendezvousSession): string => `"${version}"`;

function headersOf(session: RendezvousSession): Record<string, string> {
  return {
    ...exposed,
    etag: tagOf(session),
    expires: new Date(session.expiresMs).toUTCString(),
    'last-modified': new Date(session.writtenMs).toUTCString(),
    'x-content-type-options': 'nosniff',
  };
}

/** @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM` */
function bodyOf({ headers, rawBody }: InboundRequest): Buffer {
  if (headers['content-length'] === undefined) throw MatrixError.missingParam('The header Content-Length is missing');
  const type = headers['content-type'];
  if (typeof type !== 'string' || !/^text\/plain(?:;|$)/.test(type))
    throw MatrixError.invalidParam("The content must be 'text/plain'");
  return rawBody ?? Buffer.alloc(0);
}
