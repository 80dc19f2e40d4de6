import { Controller, Post } from '@nestjs/common';
import {
  Access,
  Inbound,
  type InboundRequest,
  type Infer,
  json,
  JsonBody,
  queryString,
  stable,
  Who,
} from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { MessageSearch } from './message-search.service.js';

const schema = json.object({ search_categories: json.object({ room_events: json.optional(json.anyObject()) }) });

@Controller()
export class SearchController {
  constructor(private readonly messages: MessageSearch) {}

  /** POST /_matrix/client/v3/search */
  @Post(stable('/search'))
  @Access({ auth: 'required', largeAnswer: true })
  async search(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(schema) body: Infer<typeof schema>,
  ): Promise<object> {
    const { room_events: criteria } = body.search_categories;
    if (criteria === undefined) return { search_categories: {} };
    const found = await this.messages.search(requester, criteria, queryString(request, 'next_batch'));
    return { search_categories: { room_events: found } };
  }
}
