import { Controller, Post } from '@nestjs/common';
import { Access, client, type Infer, json, JsonBody, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { AccountStatusService } from '../accounts/account-status.service.js';

const schema = json.object({ user_ids: json.required('Users whose status is asked for.', json.array(json.string())) });

/** Whether accounts exist (MSC3720). */
@Controller()
export class AccountStatusController {
  constructor(
    private readonly service: AccountStatusService,
    private readonly config: Config,
  ) {}

  /** POST /_matrix/client/unstable/org.matrix.msc3720/account_status */
  @Post(client(['unstable'], '/org.matrix.msc3720/account_status'))
  @Access({ auth: 'required' })
  async status(@Who() requester: Requester, @JsonBody(schema) body: Infer<typeof schema>): Promise<object> {
    if (!this.config.get('experimental_features.msc3720_enabled')) throw MatrixError.unrecognized();
    const { statuses, failures } = await this.service.of(requester, body.user_ids);
    return { account_statuses: statuses, failures };
  }
}
