import { Injectable } from '@nestjs/common';
import { FederationClient } from '@rookery/federation-client';
import { UserPorts } from '@rookery/users';

/** Where servers of the field answer. */
export const accountStatusPath = '/_matrix/federation/unstable/org.matrix.msc3720/query/account_status';
const timeoutMs = 10_000;
/** Largest answer: two hundred users with what is told of each. */
const maxBytes = 131_072;

/** Asks other servers whether accounts of theirs exist (MSC3720). */
@Injectable()
export class AccountStatusFetcher {
  constructor(client: FederationClient, ports: UserPorts) {
    ports.remoteAccountStatuses.give((server, userIds) =>
      client.postJson(server, accountStatusPath, { user_ids: [...userIds] }, { timeoutMs, maxBytes }),
    );
  }
}
