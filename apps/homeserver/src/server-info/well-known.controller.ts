import { Controller, Get } from '@nestjs/common';
import { Access, HttpReply } from '@rookery/http';
import { MatrixError, parseServerName } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { AuthenticationService } from '@rookery/users';

/** How long who has read a document need not come again, seconds: clients and servers. */
const clientsKeepSeconds = 3_600;
const serversKeepSeconds = 86_400;

/** The documents by which clients and servers find this one. */
@Controller()
export class WellKnownController {
  readonly #client: object | undefined;
  readonly #server: object | undefined;
  readonly #support: object | undefined;

  constructor(
    config: Config,
    private readonly service: AuthenticationService,
  ) {
    const publicBaseUrl = config.isGiven('public_baseurl') ? config.get('public_baseurl') : undefined;
    const identityServer = config.get('default_identity_server');
    if (publicBaseUrl) {
      this.#client = {
        ...config.get('extra_well_known_client_content'),
        'm.homeserver': { base_url: publicBaseUrl },
        ...(identityServer ? { 'm.identity_server': { base_url: identityServer } } : {}),
      };
    }
    if (config.get('serve_server_wellknown')) {
      const { serverName } = config;
      // A name with a port says all: with another one behind it, it would be no name of a server.
      this.#server = { 'm.server': parseServerName(serverName)?.port === undefined ? `${serverName}:443` : serverName };
    }
    const contact = config.get('admin_contact');
    if (contact) {
      const email = /^mailto:(.+)$/.exec(contact)?.[1];
      const matrixId = contact.startsWith('@') ? contact : undefined;
      if (email || matrixId) {
        this.#support = {
          contacts: [
            {
              role: 'm.role.admin',
              ...(email ? { email_address: email } : {}),
              ...(matrixId ? { matrix_id: matrixId } : {}),
            },
          ],
        };
      } else if (/^https?:/.test(contact)) this.#support = { support_page: contact };
    }
  }

  /** GET /.well-known/matrix/client */
  @Get('/.well-known/matrix/client')
  @Access({ auth: 'none' })
  async client(): Promise<object> {
    const document = found(this.#client);
    if (!this.service.isEnabled) return kept(document, clientsKeepSeconds);
    try {
      const { issuer, account_management_uri: account } = await this.service.metadata();
      return kept({ ...document, 'org.matrix.msc2965.authentication': { issuer, account } }, clientsKeepSeconds);
    } catch (error) {
      // Where this server is does not depend on whether the service can be asked just now; the rest is to be asked for again.
      if (MatrixError.is(error)) return document;
      throw error;
    }
  }

  /** GET /.well-known/matrix/server */
  @Get('/.well-known/matrix/server')
  @Access({ auth: 'none' })
  server(): HttpReply {
    return kept(found(this.#server), serversKeepSeconds);
  }

  /** GET /.well-known/matrix/support */
  @Get('/.well-known/matrix/support')
  @Access({ auth: 'none' })
  support(): HttpReply {
    return kept(found(this.#support), clientsKeepSeconds);
  }
}

/** @spec server-server-api#getwell-knownmatrixserver */
const kept = (document: object, seconds: number): HttpReply =>
  HttpReply.json(200, document, { 'cache-control': `public, max-age=${seconds}` });

function found(document: object | undefined): object {
  if (document === undefined) throw MatrixError.notFound();
  return document;
}
