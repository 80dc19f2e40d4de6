import { Injectable } from '@nestjs/common';
import { FederationClient, FederationRequestError } from '@rookery/federation-client';
import { domainOf } from '@rookery/matrix-types';
import { Metrics } from '@rookery/platform';
import { type Profile, UserPorts } from '@rookery/users';

const timeoutMs = 10_000;
/** Largest profile: the 64 KiB that profiles may have, and what is around. */
const maxBytes = 131_072;

/** Brings profiles of other servers' users. */
@Injectable()
export class ProfileFetcher {
  readonly #count;

  constructor(
    private readonly client: FederationClient,
    ports: UserPorts,
    metrics: Metrics,
  ) {
    this.#count = metrics.counter('synapse_federation_client_sent_queries');
    ports.remoteProfiles.give((userId, field) => this.fetch(userId, field));
  }

  /**
   * The profile as the user's server tells it; `undefined` when there is none.
   * @throws MatrixError 403 `M_FORBIDDEN` when that server does not show it, 502 or 504 when it cannot be asked
   */
  async fetch(userId: string, field: string | undefined): Promise<Profile | undefined> {
    this.#count.inc({ type: 'profile' });
    try {
      const query = { user_id: userId, field };
      const path = '/_matrix/federation/v1/query/profile';
      const { displayname, avatar_url, ...more } = await this.client.getJson(domainOf(userId), path, query, {
        ...{ timeoutMs, maxBytes, ignoreBackoff: true },
      });
      // Others may say anything; clients count on texts.
      return {
        ...more,
        ...(typeof displayname === 'string' && { displayname }),
        ...(typeof avatar_url === 'string' && { avatar_url }),
      };
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      if (error.status === 404) return undefined;
      throw error.toMatrixError();
    }
  }
}
