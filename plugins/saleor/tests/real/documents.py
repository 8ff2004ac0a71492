"""The documents for Saleor: one field each. All of it exists in 3.21 to 3.24."""

from __future__ import annotations

from typing import Final

LOGIN: Final = """mutation ($email: String!, $password: String!) {
    tokenCreate(email: $email, password: $password) { token errors { field message } } }"""

# The App

MANIFEST: Final = """mutation ($url: String!) { appFetchManifest(manifestUrl: $url) {
    manifest { identifier name version appUrl tokenTargetUrl permissions { code } webhooks { syncEvents asyncEvents targetUrl } }
    errors { field message } } }"""
APPS: Final = """query { apps(first: 100) { edges { node { id identifier isActive name version appUrl
    webhooks { isActive syncEvents { eventType } asyncEvents { eventType } } } } } }"""
APP_TOKEN: Final = "query ($id: ID!) { app(id: $id) { accessToken } }"
INSTALL: Final = """mutation ($name: String!, $manifest: String!, $permissions: [PermissionEnum!]) {
    appInstall(input: {appName: $name, manifestUrl: $manifest, permissions: $permissions}) {
        appInstallation { id } errors { field message } } }"""
INSTALLATIONS: Final = "query { appsInstallations { id status message } }"
FORGET_INSTALLATION: Final = (
    "mutation ($id: ID!) { appDeleteFailedInstallation(id: $id) { errors { field message } } }"
)
ACTIVATE: Final = "mutation ($id: ID!) { appActivate(id: $id) { errors { field message } } }"
DEACTIVATE: Final = "mutation ($id: ID!) { appDeactivate(id: $id) { errors { field message } } }"
UNINSTALL: Final = "mutation ($id: ID!) { appDelete(id: $id) { errors { field message } } }"

MAKE_APP: Final = """mutation ($name: String!) {
    appCreate(input: {name: $name, permissions: [HANDLE_CHECKOUTS]}) { app { id } authToken errors { field message } } }"""

# The shop

CHANNEL: Final = "query ($slug: String!) { channel(slug: $slug) { id } }"
PRODUCTS: Final = (
    "query ($channel: String!) { products(channel: $channel, first: 1) { edges { "
    "node { variants { id } } } } }"
)
MAKE_WAREHOUSE: Final = """mutation ($name: String!, $address: AddressInput!) {
    createWarehouse(input: {name: $name, slug: $name, address: $address}) { warehouse { id } errors { field message } } }"""
MAKE_CHANNEL: Final = (
    "mutation ($input: ChannelCreateInput!) { channelCreate(input: $input) { "
    "channel { id } errors { field message } } }"
)
MAKE_ZONE: Final = """mutation ($name: String!, $channel: ID!, $warehouse: ID!) {
    shippingZoneCreate(input: {name: $name, countries: ["US"], addChannels: [$channel], addWarehouses: [$warehouse]}) {
        shippingZone { id } errors { field message } } }"""
MAKE_SHIPPING: Final = """mutation ($name: String!, $zone: ID!) {
    shippingPriceCreate(input: {name: $name, type: PRICE, shippingZone: $zone}) { shippingMethod { id } errors { field message } } }"""
LIST_SHIPPING: Final = """mutation ($id: ID!, $channel: ID!, $price: PositiveDecimal!) {
    shippingMethodChannelListingUpdate(id: $id, input: {addChannels: [{channelId: $channel, price: $price}]}) {
        errors { field message } } }"""
MAKE_PRODUCT_TYPE: Final = """mutation ($name: String!) {
    productTypeCreate(input: {name: $name, slug: $name, kind: NORMAL, isShippingRequired: true}) {
        productType { id } errors { field message } } }"""
MAKE_CATEGORY: Final = (
    "mutation ($name: String!) { categoryCreate(input: {name: $name}) { "
    "category { id } errors { field message } } }"
)
MAKE_PRODUCT: Final = """mutation ($name: String!, $kind: ID!, $category: ID!) {
    productCreate(input: {name: $name, productType: $kind, category: $category}) { product { id } errors { field message } } }"""
LIST_PRODUCT: Final = """mutation ($id: ID!, $channel: ID!) { productChannelListingUpdate(id: $id, input: {updateChannels: [
    {channelId: $channel, isPublished: true, visibleInListings: true, isAvailableForPurchase: true}]}) { errors { field message } } }"""
MAKE_VARIANT: Final = """mutation ($product: ID!, $warehouse: ID!) { productVariantCreate(input: {product: $product, attributes: [],
    trackInventory: false, stocks: [{warehouse: $warehouse, quantity: 1000}]}) { productVariant { id } errors { field message } } }"""
LIST_VARIANT: Final = """mutation ($id: ID!, $channel: ID!, $price: PositiveDecimal!) {
    productVariantChannelListingUpdate(id: $id, input: [{channelId: $channel, price: $price}]) { errors { field message } } }"""
TRANSACTION: Final = """query ($id: ID!) { transaction(id: $id) { id pspReference actions externalUrl checkout { id } order { id }
    chargedAmount { amount } chargePendingAmount { amount } refundedAmount { amount } refundPendingAmount { amount }
    authorizedAmount { amount } authorizePendingAmount { amount }
    events { createdAt type pspReference message amount { amount } } } }"""
ORDER: Final = """query ($id: ID!) { order(id: $id) { id number status chargeStatus total { gross { amount } } totalCharged { amount }
    totalRefunded { amount } transactions { id } grantedRefunds { id status amount { amount } } } }"""
SOURCE: Final = """query ($id: ID!) { checkout(id: $id) { chargeStatus transactions { id
    chargedAmount { amount } refundedAmount { amount }
    events { createdAt type pspReference } } } }"""
PAY_BY_HAND: Final = """mutation ($id: ID!, $amount: PositiveDecimal!) {
    transactionCreate(id: $id, transaction: {name: "Cash", amountCharged: {amount: $amount, currency: "USD"}}) {
        transaction { id } errors { field message } } }"""
CANCEL: Final = (
    """mutation ($id: ID!) { orderCancel(id: $id) { order { id } errors { field message } } }"""
)
REQUEST: Final = """mutation ($id: ID!, $action: TransactionActionEnum!, $amount: PositiveDecimal) {
    transactionRequestAction(id: $id, actionType: $action, amount: $amount) { transaction { id } errors { field message } } }"""
GRANT_REFUND: Final = """mutation ($order: ID!, $transaction: ID!, $amount: Decimal!) {
    orderGrantRefundCreate(id: $order, input: {amount: $amount, transactionId: $transaction}) {
        grantedRefund { id } errors { field message } } }"""
REQUEST_GRANTED: Final = """mutation ($id: ID!) {
    transactionRequestRefundForGrantedRefund(grantedRefundId: $id) { transaction { id } errors { field message } } }"""

# The storefront

CHECKOUT: Final = """mutation ($channel: String!, $variant: ID!, $address: AddressInput!) { checkoutCreate(input: {channel: $channel,
    email: "shopper@example.com", lines: [{quantity: 1, variantId: $variant}], shippingAddress: $address, billingAddress: $address}) {
    checkout { id shippingMethods { id } } errors { field message } } }"""
PRICED_CHECKOUT: Final = """mutation ($channel: String!, $variant: ID!, $price: PositiveDecimal!) { checkoutCreate(
    input: {channel: $channel, email: "shopper@example.com", lines: [{quantity: 1, variantId: $variant, price: $price}]}) {
    checkout { id } errors { field message } } }"""
PRICE_CHECKOUT: Final = """mutation ($id: ID!, $variant: ID!, $price: PositiveDecimal!) {
    checkoutLinesUpdate(id: $id, lines: [{quantity: 1, variantId: $variant, price: $price}]) { errors { field message } } }"""
QUANTITY: Final = """mutation ($id: ID!, $variant: ID!, $quantity: Int!) {
    checkoutLinesUpdate(id: $id, lines: [{quantity: $quantity, variantId: $variant}]) { errors { field message } } }"""
OUTBOX_EVENT: Final = """mutation ($id: ID!, $method: ID!) {
    checkoutDeliveryMethodUpdate(id: $id, deliveryMethodId: $method) { errors { field message } } }"""
GATEWAYS: Final = """mutation ($id: ID!, $gateway: String!, $amount: PositiveDecimal) {
    paymentGatewayInitialize(id: $id, amount: $amount, paymentGateways: [{id: $gateway}]) {
    gatewayConfigs { id data errors { message } } errors { field message } } }"""
INITIALIZE: Final = """mutation ($id: ID!, $gateway: String!, $data: JSON, $key: String, $amount: PositiveDecimal,
    $action: TransactionFlowStrategyEnum) { transactionInitialize(id: $id, paymentGateway: {id: $gateway, data: $data},
    idempotencyKey: $key, amount: $amount, action: $action) {
    transaction { id } transactionEvent { type pspReference message } data errors { field message } } }"""
PROCESS: Final = """mutation ($id: ID!) { transactionProcess(id: $id) {
    transaction { id } transactionEvent { type pspReference message } data errors { field message } } }"""
COMPLETE: Final = (
    "mutation ($id: ID!) { checkoutComplete(id: $id) { order { id } errors { field message } } }"
)
