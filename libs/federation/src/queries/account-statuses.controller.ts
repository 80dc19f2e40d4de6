import { Controller, Post } from '@nestjs/common';
import { type Infer, json } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config, Metrics } from '@rookery/platform';
import { AccountStatusService } from '@rookery/users';
import { FederationAccess, SignedContent } from '../inbound/federation-access.js';
import { accountStatusPath } from './account-status-fetcher.js';

/** Where they ask. */
const askedPath = '/_matrix/federation/unstable/org.matrix.msc3720/account_status';

const statusBody = json.object({
  user_ids: json.required('Users whose status is asked for.', json.array(json.unknown())),
});

/** Whether accounts exist, between servers (MSC3720). */
@Controller()
export class AccountStatusesForServersController {
  readonly #count;

  constructor(
    private readonly statuses: AccountStatusService,
    private readonly config: Config,
    metrics: Metrics,
  ) {
    this.#count = metrics.counter('synapse_federation_server_received_queries');
  }

  /**
   * POST /_matrix/federation/unstable/org.matrix.msc3720/query/account_status: of users of this server.
   * Servers of the field answer there, and ask at the same path without `query`.
   * @throws MatrixError 400 `M_INVALID_PARAM` for users of others and for too many
   */
  @Post([accountStatusPath, askedPath])
  @FederationAccess()
  async status(@SignedContent(statusBody) body: Infer<typeof statusBody>): Promise<object> {
    if (!this.config.get('experimental_features.msc3720_enabled')) throw MatrixError.unrecognized();
    this.#count.inc({ type: 'account_status' });
    const { statuses, failures } = await this.statuses.ofLocal(body.user_ids);
    return { account_statuses: statuses, failures };
  }
}
